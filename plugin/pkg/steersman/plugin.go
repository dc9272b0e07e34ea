// Package steersman is a plugin for kube-scheduler: nodes are ranked by a policy of steersman (PreScore, Score), which
// is evaluated in this process (native) or asked of a score service, and with a service pods with a hard limit of
// latency are kept to the nodes that keep it (PreFilter, Filter, PostFilter).
//
// It never costs a pod its node. Whatever goes wrong, PreScore and Score succeed, every node gets the same score, so
// that the other plugins decide, and a counter says why.
package steersman

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/lru"

	"steersman.dev/plugin/internal/breaker"
	"steersman.dev/plugin/internal/compat"
	"steersman.dev/plugin/internal/native"
	"steersman.dev/plugin/internal/scoring"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = "Steersman"

// reloadInterval is the interval between checks of the policy file and of the breakers.
const reloadInterval = time.Second

// Plugin scores nodes for one profile.
type Plugin struct {
	scoreWriter
	args              *Args
	source            scoring.Source
	policyStore       *native.PolicyStore // nil if the scores are a service's
	limits            limitSource         // nil without a service, and in shadow
	limitBreaker      *breaker.Breaker
	retryWithoutLimit *lru.Cache // pods that are to be tried without their limit, once
	handle            compat.Handle
	breaker           *breaker.Breaker
	recorder          *recorder
	logger            *throttledLogger
}

var (
	_ compat.PreFilterPlugin  = (*Plugin)(nil)
	_ compat.FilterPlugin     = (*Plugin)(nil)
	_ compat.PostFilterPlugin = (*Plugin)(nil)
	_ compat.PreScorePlugin   = (*Plugin)(nil)
	_ compat.ScorePlugin      = (*Plugin)(nil)
	_ compat.SignPlugin       = (*Plugin)(nil)
	_ compat.PostBindPlugin   = (*Plugin)(nil)
)

// New returns the plugin of a profile. It fails if its arguments are invalid, and not because a file or a service is
// missing.
func New(ctx context.Context, given runtime.Object, handle compat.Handle) (compat.Plugin, error) {
	args, err := parseArgs(given)
	if err != nil {
		return nil, err
	}
	logger := klog.FromContext(ctx).WithValues("plugin", Name, "profile", compat.ProfileName(handle))
	plugin := &Plugin{
		args:              args,
		retryWithoutLimit: lru.New(maxRetries),
		handle:            handle,
		breaker:           breaker.New(args.Breaker.Failures, args.open),
		limitBreaker:      breaker.New(args.Breaker.Failures, args.open),
		recorder:          newRecorder(compat.ProfileName(handle)),
		logger:            newThrottledLogger(logger),
	}
	if err := plugin.createSources(ctx, logger, handle); err != nil {
		return nil, fmt.Errorf("args.%w", err)
	}
	go plugin.reloadAndObserve(ctx, plugin.limits != nil)
	return plugin, nil
}

func (p *Plugin) Name() string { return Name }

// reloadAndObserve reloads the policy file, if there is one, and publishes the states of the breakers every second.
func (p *Plugin) reloadAndObserve(ctx context.Context, hasLimits bool) {
	wait.UntilWithContext(ctx, func(context.Context) {
		p.observeBreakers(hasLimits)
		if p.policyStore != nil {
			p.policyStore.Reload()
		}
	}, reloadInterval)
}

// observeBreakers publishes the states of the breakers; that of limits only if they are asked for.
func (p *Plugin) observeBreakers(hasLimits bool) {
	p.recorder.observeBreaker("scores", p.breaker.State())
	if hasLimits {
		p.recorder.observeBreaker("limits", p.limitBreaker.State())
	}
}

const stateKey = fwk.StateKey(Name)

// scoreResult holds the scores of the nodes that a pod may go to.
type scoreResult struct {
	nodes  []fwk.NodeInfo // those that were asked about
	found  []int64        // scores of the source, by their position; nil: there are none
	scores []int64        // the same where they count; nil: all are equal
	wanted string         // the node that would be chosen; "" if there are no scores
	reason string         // why scores are neutral; "" if they are not
}

// Clone implements fwk.StateData; a scoreResult never changes.
func (r *scoreResult) Clone() fwk.StateData { return r }

// PreScore requests the scores of all nodes. It always succeeds.
func (p *Plugin) PreScore(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	began := time.Now()
	result := p.scoreNodes(ctx, pod, nodes)
	state.Write(stateKey, result)
	p.recorder.observeDuration(time.Since(began))
	p.logScores(ctx, pod, nodes, result)
	return nil
}

// scoreWriter writes the scores that PreScore of Plugin found, for all nodes at once. It always succeeds.
type scoreWriter struct{}

// Score returns the neutral score, which stays where PreScore is not enabled or found none.
func (scoreWriter) Score(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return scoring.Neutral, nil
}

func (w scoreWriter) ScoreExtensions() compat.ScoreExtensions { return w }

// NormalizeScore writes the scores.
func (scoreWriter) NormalizeScore(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, out compat.NodeScoreList,
) *fwk.Status {
	value, _ := state.Read(stateKey)
	if result, ok := value.(*scoreResult); ok && result.matches(out) {
		for i := range out {
			out[i].Score = result.scores[i]
		}
	}
	return nil
}

// matches reports whether there are scores about these nodes, which kube-scheduler lists in the order of PreScore.
func (r *scoreResult) matches(listed compat.NodeScoreList) bool {
	return r.scores != nil && slices.EqualFunc(r.nodes, listed, func(node fwk.NodeInfo, score compat.NodeScore) bool {
		return node.Node().Name == score.Name
	})
}

// PostBind counts whether the pod was bound to the node that the source ranked first.
func (p *Plugin) PostBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	value, _ := state.Read(stateKey)
	result, ok := value.(*scoreResult)
	if !ok || result.wanted == "" {
		return // there was but one node, or there are no scores
	}
	p.logBinding(ctx, pod, node, result)
	agrees := result.wanted == node
	p.recorder.observeBinding(agrees)
	if p.args.Mode == modeShadow {
		klog.FromContext(ctx).Info("Shadow decision", "plugin", Name, "pod", klog.KObj(pod), "node", node,
			"wanted", result.wanted, "agrees", agrees)
	}
}
