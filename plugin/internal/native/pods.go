package native

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/scoring"
)

// Pod is what a pod requests. Equal ones have equal scores in the same state.
type Pod struct {
	CPU, Memory             int64 // milli-CPU and bytes
	CPUScored, MemoryScored int64 // in kube-scheduler's scoring view, in which a container has defaults
	GPU                     gpu.Request
}

// PodOf returns what a pod requests, as kube-scheduler will count it on the pod's node. The error is of the pod alone.
func PodOf(pod *v1.Pod) (Pod, error) {
	requests := (&framework.PodInfo{Pod: pod}).CalculateResource()
	gpus, err := gpu.RequestOf(pod)
	if err != nil {
		return Pod{}, &scoring.Error{Err: err, Reason: "pod", Harmless: true}
	}
	return Pod{
		CPU: requests.Resource.GetMilliCPU(), Memory: requests.Resource.GetMemory(),
		CPUScored: requests.Non0CPU, MemoryScored: requests.Non0Mem, GPU: gpus,
	}, nil
}

// constraint is what nodes must offer a pod, whatever is free there.
type constraint struct {
	request gpu.Request // without amounts: Count is 1 if the pod requests GPUs
	among   string      // of a network, the nodes that passed the filters, a byte each; "": all
}

func (c *constraint) allows(n int, node *node) bool {
	if c.among != "" && c.among[n] == 0 || !node.gpus.Accepts(&c.request) {
		return false
	}
	name := c.request.Resource
	return c.request.Count == 0 || node.gpus.CountedAs(name) != nil || node.gpus.Offers(name)
}

// class is a kind of pods, which has a row of scores in the core.
type class struct {
	Pod
	among string // see constraint
}

func (c *class) constraint() constraint {
	request := gpu.Request{Count: min(c.GPU.Count, 1), Models: c.GPU.Models, Resource: c.GPU.Resource}
	return constraint{request, c.among}
}

// classes are those that the core knows, by their numbers there.
type classes struct {
	numbers     map[class]int
	constraints []constraint
}
