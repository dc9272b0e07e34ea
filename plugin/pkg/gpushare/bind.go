package gpushare

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/gpu"
)

const lookedUpEvery = 500 * time.Millisecond

// Bind binds a pod with GPUs and writes its devices, in one request. Other pods are left to the next plugin.
func (p *Plugin) Bind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	devices, ok := p.ledger.Reserved(pod.UID, node)
	if !ok {
		return fwk.NewStatus(fwk.Skip)
	}
	index := gpu.Index(devices)
	err := p.send(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			Annotations: map[string]string{gpu.IndexKey: index},
		},
		Target: v1.ObjectReference{Kind: "Node", Name: node},
	})
	if err != nil && mayBeDone(err) && p.isBound(ctx, pod, node, index) {
		return nil
	}
	return fwk.AsStatus(err)
}

// send posts the binding, as DefaultBinder does.
func (p *Plugin) send(ctx context.Context, binding *v1.Binding) error {
	cacher := p.handle.APICacher()
	if cacher == nil {
		return p.handle.ClientSet().CoreV1().Pods(binding.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
	}
	finished, err := cacher.BindPod(binding)
	if err != nil {
		return err
	}
	return cacher.WaitOnFinish(ctx, finished)
}

// mayBeDone reports whether a binding may have succeeded all the same: its answer was lost, or it is in conflict with
// an attempt of our own whose answer was lost.
func mayBeDone(err error) bool {
	code := statusOf(err)
	return code == 0 || code == 409 || code >= 500
}

// statusOf returns the HTTP status of an answer; 0 if there was none.
func statusOf(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return status.Status().Code
}

// isBound looks up what became of a pod, until there is an answer: its devices must not go to another pod before.
func (p *Plugin) isBound(ctx context.Context, pod *v1.Pod, node, index string) bool {
	var bound bool
	err := wait.PollUntilContextCancel(ctx, lookedUpEvery, true, func(ctx context.Context) (bool, error) {
		result, err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil {
			bound = result.UID == pod.UID && result.Spec.NodeName == node && result.Annotations[gpu.IndexKey] == index
			return true, nil
		}
		code := statusOf(err)
		return code != 0 && code != 429 && code < 500, nil
	})
	if err != nil {
		klog.FromContext(ctx).Info("Nobody knows whether a pod is bound", "pod", klog.KObj(pod), "node", node, "err", err)
	}
	return bound
}
