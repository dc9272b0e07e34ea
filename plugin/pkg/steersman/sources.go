package steersman

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/compat"
	"steersman.dev/plugin/internal/native"
	"steersman.dev/plugin/internal/remote"
	"steersman.dev/plugin/internal/scoring"
)

// telemetryPolicies are rules of nodes' metrics, which the service has.
var telemetryPolicies = []string{"ma", "la", "lc", "p0"}

// createSources creates the source of scores, and what is asked about latency limits. The error names the invalid
// argument.
func (p *Plugin) createSources(ctx context.Context, logger klog.Logger, handle compat.Handle) error {
	snapshot := func() ([]fwk.NodeInfo, error) { return handle.SnapshotSharedLister().NodeInfos().List() }
	if p.args.Endpoint != "" {
		client, err := remote.New(ctx, remote.Config{
			Endpoint: p.args.Endpoint, TokenFile: p.args.TokenFile,
			CAFile: p.args.CAFile, CertFile: p.args.CertFile, KeyFile: p.args.KeyFile,
		}, snapshot)
		if err != nil {
			return err
		}
		if p.args.Mode != modeShadow {
			p.limits = client
		}
		if p.args.Mode != modeNative {
			p.source = client
			return nil
		}
	}
	return p.createNativeSource(logger, handle, snapshot)
}

func (p *Plugin) createNativeSource(logger klog.Logger, handle compat.Handle, snapshot scoring.Snapshot) error {
	if err := p.checkPolicy(); err != nil {
		return err
	}
	p.policyStore = native.NewPolicyStore(p.args.Policy, p.args.PolicyFile, func(loaded *native.LoadedPolicy, err error) {
		p.recorder.observePolicyRead(loaded, err)
		logPolicyRead(logger, p.args.PolicyFile, loaded, err)
	})
	p.policyStore.Reload()
	result := native.New(p.policyStore, snapshot)
	p.source = result
	if p.args.Mode != modeShadow {
		scoring.RegisterSelector(compat.ProfileName(handle), result)
	}
	return nil
}

// checkPolicy checks that the name is one, and that there is a file where the policy needs a workload profile.
func (p *Plugin) checkPolicy() error {
	switch name := p.args.Policy; {
	case slices.Contains(telemetryPolicies, name):
		return fmt.Errorf("policy: %q decides by nodes' metrics; expected mode: service with an endpoint of "+
			"\"steersman serve --policy %s --telemetry FILE\"", name, name)
	case name == native.FGD && p.args.PolicyFile == "":
		return fmt.Errorf("policyFile: is missing; policy %q needs the workload profile of a prepared policy file", name)
	case name != "" && name != native.FGD:
		if _, err := native.Rule(name); err != nil {
			return fmt.Errorf("policy: %w", err)
		}
	}
	return nil
}

func logPolicyRead(logger klog.Logger, file string, loaded *native.LoadedPolicy, err error) {
	switch {
	case err == nil:
		logger.Info("Policy in use", "policy", loaded.Policy.Name, "file", file)
	case loaded != nil:
		logger.Error(err, "The policy file cannot be used; the previous policy stays in use", "policy", loaded.Policy.Name)
	default:
		logger.Error(err, "The policy file cannot be used; all nodes get the same score until it can be")
	}
}
