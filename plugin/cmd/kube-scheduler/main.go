// Command kube-scheduler is kube-scheduler with the plugins of steersman compiled in. A KubeSchedulerConfiguration
// says which of them a profile uses; without one it is the stock scheduler.
package main

import (
	"os"
	_ "time/tzdata" // time zones of log lines, where there is no file of them

	_ "k8s.io/client-go/plugin/pkg/client/auth" // logins that kubeconfig files name
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"steersman.dev/plugin/pkg/gpushare"
	"steersman.dev/plugin/pkg/order"
	"steersman.dev/plugin/pkg/steersman"
)

func main() {
	command := app.NewSchedulerCommand(
		app.WithPlugin(steersman.Name, steersman.New),
		app.WithPlugin(steersman.WeightName, steersman.NewWeight),
		app.WithPlugin(gpushare.Name, gpushare.New),
		app.WithPlugin(order.Name, order.New),
	)
	os.Exit(cli.Run(command))
}
