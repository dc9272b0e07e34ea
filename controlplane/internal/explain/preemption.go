package explain

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// Preemption is what PostFilter makes of a pod that fits nowhere.
type Preemption struct {
	// Node that is nominated, "" for none; Message is that of the status.
	Node    string `json:"node"`
	Message string `json:"message"`
	// Potential nodes: those whose refusal removed pods may resolve, in the order in which they would be tried.
	Potential []string `json:"potential"`
	// Tried nodes, in that order.
	Tried []Tried `json:"tried"`
}

// Tried is the dry run on a node.
type Tried struct {
	Node string `json:"node"`
	// Victims, as namespace/name, the most important first; none if the pod would not fit.
	Victims    []string `json:"victims"`
	Violations int      `json:"violations"`
}

// dryRuns is the logic of the plugin, from a given offset instead of a random one, and what it tried.
type dryRuns struct {
	preemption.Interface
	offset int32
	tried  []Tried
}

func (r *dryRuns) GetOffsetAndNumCandidates(nodes int32) (int32, int32) {
	_, candidates := r.Interface.GetOffsetAndNumCandidates(nodes)
	return r.offset % nodes, candidates
}

func (r *dryRuns) record(node fwk.NodeInfo, victims []*v1.Pod, violations int) {
	tried := Tried{Node: node.Node().Name, Victims: []string{}, Violations: violations}
	for _, victim := range victims {
		tried.Victims = append(tried.Victims, victim.Namespace+"/"+victim.Name)
	}
	r.tried = append(r.tried, tried)
}

// preempt runs PostFilter after a scheduling cycle that found no node.
func (c *cluster) preempt(ctx context.Context, plugins framework.Framework, state fwk.CycleState, pod *v1.Pod, refused *framework.FitError, offset int32) (*Preemption, error) {
	plugin := defaultPreemption(plugins)
	if plugin == nil {
		return nil, errors.New("the profile has no DefaultPreemption")
	}
	// The plugin looks up the pod as it is now.
	if err := c.factory.of(pod).indexer.Add(pod); err != nil {
		return nil, err
	}
	nodes := plugins.SnapshotSharedLister().NodeInfos()
	every, err := nodes.List()
	if err != nil {
		return nil, err
	}
	// Nodes with a status are taken in the order of the snapshot, those without in random order.
	statuses := framework.NewNodeToStatus(map[string]*fwk.Status{}, fwk.NewStatus(fwk.Unschedulable))
	for _, node := range every {
		statuses.Set(node.Node().Name, refused.Diagnosis.NodeToStatus.Get(node.Node().Name))
	}
	potential, err := statuses.NodesForStatusCode(nodes, fwk.Unschedulable)
	if err != nil {
		return nil, err
	}
	own := plugin.Evaluator.Interface
	recording := &dryRuns{Interface: own, offset: offset}
	plugin.Evaluator.Interface = recording
	result, status := plugins.RunPostFilterPlugins(ctx, state, pod, statuses)
	plugin.Evaluator.Interface = own
	found := &Preemption{Message: status.Message(), Potential: []string{}, Tried: recording.tried}
	for i := range potential {
		found.Potential = append(found.Potential, potential[(int(offset)+i)%len(potential)].Node().Name)
	}
	if status.IsSuccess() && result != nil {
		found.Node = result.NominatedNodeName
	}
	return found, nil
}

func defaultPreemption(plugins framework.Framework) *defaultpreemption.DefaultPreemption {
	for _, each := range plugins.PreEnqueuePlugins() {
		if plugin, is := each.(*defaultpreemption.DefaultPreemption); is {
			return plugin
		}
	}
	return nil
}
