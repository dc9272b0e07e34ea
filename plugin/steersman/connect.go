package steersman

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/native"
	"steersman.dev/plugin/policy"
	"steersman.dev/plugin/remote"
	"steersman.dev/plugin/scoring"
)

// connect makes the sources of scores. The error names the argument that is wrong.
func (p *Plugin) connect(ctx context.Context, logger klog.Logger, handle fwk.Handle) error {
	if p.args.Endpoint != "" {
		client, err := remote.New(ctx, remote.Config{
			Endpoint:  p.args.Endpoint,
			TokenFile: p.args.TokenFile,
			CAFile:    p.args.CAFile,
			CertFile:  p.args.CertFile,
			KeyFile:   p.args.KeyFile,
		})
		p.source = client
		return err
	}
	return p.connectNative(logger, handle)
}

func (p *Plugin) connectNative(logger klog.Logger, handle fwk.Handle) error {
	if err := p.checkPolicy(); err != nil {
		return err
	}
	p.keeper = native.NewKeeper(p.args.Policy, p.args.PolicyFile, func(running *native.Running, err error) {
		p.meter.readPolicy(running, err)
		tell(logger, p.args.PolicyFile, running, err)
	})
	p.keeper.Look()
	found := native.New(p.keeper, func() native.Snapshot { return handle.SnapshotSharedLister().NodeInfos() })
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
			return fmt.Errorf("policy: %w", err)
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
