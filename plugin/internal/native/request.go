package native

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/policy"
	"steersman.dev/plugin/internal/scoring"
)

// Signature is what scores depend on of a pod, but for its owner: pods of one signature have the same score on the same
// node.
type Signature struct {
	CPU, Memory, CPUScored, MemoryScored, GPUCount, GPUMilli int64
	GPUModels                                                string // A|B
	GPUResource                                              string
}

// SignatureOf returns what a pod requests, as kube-scheduler will count it on the pod's node. The error is of the pod alone.
func SignatureOf(pod *v1.Pod) (Signature, error) {
	requests := (&framework.PodInfo{Pod: pod}).CalculateResource()
	devices, err := gpu.RequestOf(pod)
	if err != nil {
		return Signature{}, &scoring.Error{Err: err, Reason: "pod", Harmless: true}
	}
	return Signature{
		CPU: requests.Resource.GetMilliCPU(), Memory: requests.Resource.GetMemory(),
		CPUScored: requests.Non0CPU, MemoryScored: requests.Non0Mem,
		GPUCount: devices.Count, GPUMilli: devices.Milli, GPUModels: strings.Join(devices.Models, "|"),
		GPUResource: devices.Resource,
	}, nil
}

// pod returns a pod of the signature, without an owner.
func (s *Signature) pod() *policy.Pod {
	result := &policy.Pod{
		CPU: s.CPU, Memory: s.Memory, CPUScored: s.CPUScored, MemoryScored: s.MemoryScored,
		GPU: policy.GPURequest{Count: s.GPUCount, Milli: s.GPUMilli, Resource: s.GPUResource},
	}
	if s.GPUModels != "" {
		result.GPU.Models = strings.Split(s.GPUModels, "|")
	}
	return result
}
