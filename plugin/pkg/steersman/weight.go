package steersman

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/compat"
	"steersman.dev/plugin/internal/gpu"
)

// WeightName is the name of the plugin Weight in a KubeSchedulerConfiguration.
const WeightName = "SteersmanGpuWeight"

// Weight repeats the scores of Steersman for pods that request GPUs, and is skipped for others. Its weight in a profile
// is added to that of Steersman for pods with GPUs.
//
// It is a plugin of its own because kube-scheduler multiplies all scores of a plugin by one weight: with the weight at
// which one point of Steersman decides about pods with GPUs, one point would decide about all pods.
type Weight struct{ scoreWriter }

var (
	_ compat.PreScorePlugin = (*Weight)(nil)
	_ compat.ScorePlugin    = (*Weight)(nil)
	_ compat.SignPlugin     = (*Weight)(nil)
)

// NewWeight returns the plugin of a profile. It has no arguments.
func NewWeight(context.Context, runtime.Object, compat.Handle) (compat.Plugin, error) {
	return &Weight{}, nil
}

func (*Weight) Name() string { return WeightName }

// PreScore leaves pods without GPUs out.
func (*Weight) PreScore(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if request, err := gpu.RequestOf(pod); err != nil || request.Count == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// SignPod adds nothing to what Steersman says of a pod.
func (*Weight) SignPod(context.Context, *v1.Pod) ([]compat.SignFragment, *fwk.Status) {
	return nil, nil
}
