package steersman

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/native"
	"steersman.dev/plugin/objectives"
	"steersman.dev/plugin/policy"
	"steersman.dev/plugin/prometheus"
	"steersman.dev/plugin/remote"
	"steersman.dev/plugin/scoring"
)

// connect makes the sources of scores. The error names the argument that is wrong.
func (p *Plugin) connect(ctx context.Context, logger klog.Logger, handle fwk.Handle) error {
	collector, err := p.connectTelemetry(ctx, handle)
	if err != nil {
		return err
	}
	snapshot := func() ([]fwk.NodeInfo, error) { return handle.SnapshotSharedLister().NodeInfos().List() }
	if collector != nil && p.args.Mode != modeShadow {
		p.limits = objectives.NewKeeper(collector, snapshot)
	}
	switch {
	case p.args.Endpoint != "":
		p.source, err = remote.New(ctx, remote.Config{
			Endpoint:  p.args.Endpoint,
			TokenFile: p.args.TokenFile,
			CAFile:    p.args.CAFile,
			CertFile:  p.args.CertFile,
			KeyFile:   p.args.KeyFile,
		}, snapshot)
		return err
	case slices.Contains(objectives.Names(), p.args.Policy) && p.args.PolicyFile != "":
		return fmt.Errorf("policyFile: is of no use to the objective %q; leave it out", p.args.Policy)
	case slices.Contains(objectives.Names(), p.args.Policy):
		p.source, err = objectives.New(p.args.Policy, collector, snapshot)
		return err
	}
	return p.connectNative(logger, handle, snapshot)
}

// connectTelemetry begins to ask Prometheus, if that is wanted.
func (p *Plugin) connectTelemetry(ctx context.Context, handle fwk.Handle) (*prometheus.Collector, error) {
	if p.args.TelemetryFile == "" {
		return nil, nil
	}
	nodes := handle.SharedInformerFactory().Core().V1().Nodes().Lister()
	collector, err := prometheus.Start(ctx, p.args.TelemetryFile, nodes)
	if err != nil {
		return nil, fmt.Errorf("telemetryFile: %w", err)
	}
	if p.args.Fallback == fallbackMetrics {
		ranking, err := prometheus.NewByFeature(collector, p.args.FallbackFeature)
		if err != nil {
			return nil, fmt.Errorf("fallbackFeature: %w", err)
		}
		p.fallback = ranking
	}
	return collector, nil
}

func (p *Plugin) connectNative(
	logger klog.Logger, handle fwk.Handle, snapshot scoring.Snapshot,
) error {
	if err := p.checkPolicy(); err != nil {
		return err
	}
	p.keeper = native.NewKeeper(p.args.Policy, p.args.PolicyFile, func(running *native.Running, err error) {
		p.meter.readPolicy(running, err)
		tell(logger, p.args.PolicyFile, running, err)
	})
	p.keeper.Look()
	found := native.New(p.keeper, snapshot)
	p.source = found
	if p.args.Mode != modeShadow {
		scoring.Offer(handle.ProfileName(), found)
	}
	return nil
}

// checkPolicy makes sure that the name is one, and that there is a file where the policy needs its mix.
func (p *Plugin) checkPolicy() error {
	switch name := p.args.Policy; {
	case name == policy.FGD && p.args.PolicyFile == "":
		return fmt.Errorf("policyFile: is missing; policy %q needs the mix of a prepared policy file", name)
	case name != "" && name != policy.FGD:
		if _, err := policy.Local(name, nil); err != nil {
			return fmt.Errorf("policy: %w, and objectives %s", err, strings.Join(objectives.Names(), ", "))
		}
	}
	return nil
}

// tell logs what became of the policy.
func tell(logger klog.Logger, file string, running *native.Running, err error) {
	switch {
	case err == nil:
		logger.Info("Policy in use", "policy", running.Policy.Name(), "file", file)
	case running != nil:
		logger.Error(err, "The policy file cannot be used; the former policy goes on", "policy", running.Policy.Name())
	default:
		logger.Error(err, "The policy file cannot be used; all nodes get the same score until it can be")
	}
}
