// Command kube-router is the controller that enforces NetworkPolicies by iptables, built from its Go module.
package main

import (
	"fmt"
	"os"

	"github.com/cloudnativelabs/kube-router/v2/pkg/cmd"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/spf13/pflag"
)

func main() {
	config := options.NewKubeRouterConfig()
	config.AddFlags(pflag.CommandLine)
	pflag.Parse()
	router, err := cmd.NewKubeRouterDefault(config)
	if err == nil {
		err = router.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
