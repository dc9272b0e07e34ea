// Package steersman is a score plugin for kube-scheduler: nodes are ranked by a policy of steersman, which is evaluated
// in this process (native) or asked of a score service.
//
// It never costs a pod its node. Whatever goes wrong, PreScore and Score succeed, every node gets the same score, so
// that the other plugins decide, and a counter says why.
package steersman

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/breaker"
	"steersman.dev/plugin/native"
	"steersman.dev/plugin/objectives"
	"steersman.dev/plugin/scoring"
)

// Name is what a KubeSchedulerConfiguration calls the plugin.
const Name = "Steersman"

// lookEvery is the time between looks at files and at the breaker.
const lookEvery = time.Second

// Plugin scores nodes for one profile.
type Plugin struct {
	args     *Args
	source   scoring.Source
	fallback scoring.Source     // nil: all nodes are equal
	keeper   *native.Keeper     // nil if a service or an objective is asked
	limits   *objectives.Keeper // nil without telemetry
	relaxed  *relaxed
	handle   fwk.Handle
	breaker  *breaker.Breaker
	meter    *meter
	complain *complaints
}

var (
	_ fwk.PreFilterPlugin  = (*Plugin)(nil)
	_ fwk.PostFilterPlugin = (*Plugin)(nil)
	_ fwk.PreScorePlugin   = (*Plugin)(nil)
	_ fwk.ScorePlugin      = (*Plugin)(nil)
	_ fwk.ScoreExtensions  = (*Plugin)(nil)
	_ fwk.SignPlugin       = (*Plugin)(nil)
	_ fwk.PostBindPlugin   = (*Plugin)(nil)
)

// New is the plugin of a profile. It fails if its arguments make no sense, and not because a file or a service is not
// there.
func New(ctx context.Context, given runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	args, err := parseArgs(given)
	if err != nil {
		return nil, err
	}
	logger := klog.FromContext(ctx).WithValues("plugin", Name, "profile", handle.ProfileName())
	found := &Plugin{
		args:     args,
		relaxed:  newRelaxed(),
		handle:   handle,
		breaker:  breaker.New(args.Breaker.Failures, args.open),
		meter:    newMeter(handle.ProfileName()),
		complain: newComplaints(logger),
	}
	if err := found.connect(ctx, logger, handle); err != nil {
		return nil, fmt.Errorf("args.%w", err)
	}
	go found.keep(ctx)
	return found, nil
}

// Name is that of fwk.Plugin.
func (p *Plugin) Name() string { return Name }

// keep looks from time to time at what nobody tells.
func (p *Plugin) keep(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		p.meter.sawBreaker(p.breaker.State())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if p.keeper != nil {
			p.keeper.Look()
		}
	}
}

// stateKey is the key of a pod's opinion in the CycleState.
const stateKey = fwk.StateKey(Name)

// opinion is what the source thinks of the nodes that a pod may go to.
type opinion struct {
	nodes  []fwk.NodeInfo // those that were asked about
	scores []int64        // by their position; nil: all are equal
	wanted string         // the node that would be chosen; "" if there is no opinion
	reason string         // why there is none
}

// Clone is that of fwk.StateData; an opinion does not change.
func (o *opinion) Clone() fwk.StateData { return o }

// PreScore asks for the scores of all nodes. It always succeeds.
func (p *Plugin) PreScore(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	began := time.Now()
	found := p.think(ctx, pod, nodes)
	state.Write(stateKey, found)
	p.meter.decided(time.Since(began))
	return nil
}

// Score is that of a node without an opinion; NormalizeScore writes what PreScore found, for all nodes at once. It always
// succeeds.
func (p *Plugin) Score(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return scoring.Neutral, nil
}

// ScoreExtensions is the plugin itself.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore writes the scores that PreScore found. It always succeeds.
func (p *Plugin) NormalizeScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, out fwk.NodeScoreList) *fwk.Status {
	writeOpinion(state, out)
	return nil
}

// writeOpinion writes the scores that PreScore found, if it is enabled and found any.
func writeOpinion(state fwk.CycleState, out fwk.NodeScoreList) {
	found, err := state.Read(stateKey)
	if err != nil {
		return
	}
	if thought, ok := found.(*opinion); ok && thought.isAbout(out) {
		for i := range out {
			out[i].Score = thought.scores[i]
		}
	}
}

// isAbout tells whether there is an opinion about these nodes, which kube-scheduler lists in the order of PreScore.
func (o *opinion) isAbout(listed fwk.NodeScoreList) bool {
	if o.scores == nil || len(listed) != len(o.nodes) {
		return false
	}
	for i, node := range o.nodes {
		if node.Node().Name != listed[i].Name {
			return false
		}
	}
	return true
}

// PostBind counts whether the pod went where the source wanted it.
func (p *Plugin) PostBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	found, err := state.Read(stateKey)
	if err != nil {
		return // there was but one node
	}
	thought, ok := found.(*opinion)
	if !ok || thought.wanted == "" {
		return
	}
	agrees := thought.wanted == node
	p.meter.bound(agrees)
	if p.args.Mode == modeShadow {
		klog.FromContext(ctx).Info("Shadow decision", "plugin", Name, "pod", klog.KObj(pod), "node", node,
			"wanted", thought.wanted, "agrees", agrees)
	}
}
