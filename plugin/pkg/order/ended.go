package order

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"steersman.dev/plugin/internal/orders"
)

// endedPod is what the run time of a pod that has ended teaches.
type endedPod struct {
	uid     types.UID
	at      time.Time
	kind    *orders.PodKind
	seconds float64
}

// learnFromEnded learns the run times of pods that ended before they were watched and are still listed. The informer of
// kube-scheduler leaves them out. A failure is logged: estimates are then those of a cluster in which nothing has
// ended.
func (q *queue) learnFromEnded(ctx context.Context, client kubernetes.Interface) {
	logger := klog.FromContext(ctx).WithValues("plugin", Name)
	var ended []endedPod
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
	})
	selector := fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(v1.PodPending)),
		fields.OneTermNotEqualSelector("status.phase", string(v1.PodRunning)),
		fields.OneTermNotEqualSelector("status.phase", string(v1.PodUnknown)),
	)
	err := list.EachListItem(ctx, metav1.ListOptions{FieldSelector: selector.String()}, func(obj runtime.Object) error {
		if pod, is := runOf(obj.(*v1.Pod)); is {
			ended = append(ended, pod)
		}
		return nil
	})
	q.mutex.Lock()
	watched := q.ended
	q.ended = nil
	q.mutex.Unlock()
	if err != nil {
		logger.Error(err, "Run times of pods that ended before are unknown")
		return
	}
	// These teach, or have taught, by their events.
	ended = slices.DeleteFunc(ended, func(pod endedPod) bool { return watched[pod.uid] || q.cluster.holds(pod.uid) })
	// What ended last is forgotten last.
	slices.SortFunc(ended, func(a, b endedPod) int { return a.at.Compare(b.at) })
	for _, each := range ended {
		q.runTimes.Note(each.kind, each.seconds)
	}
	logger.Info("Learned run times of pods that ended before", "pods", len(ended))
}

// runOf returns what a pod teaches that has ended. One that does not say when it ran teaches nothing.
func runOf(pod *v1.Pod) (endedPod, bool) {
	if pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed || pod.Status.StartTime == nil {
		return endedPod{}, false
	}
	var end time.Time
	for _, status := range pod.Status.ContainerStatuses {
		if terminated := status.State.Terminated; terminated != nil && terminated.FinishedAt.After(end) {
			end = terminated.FinishedAt.Time
		}
	}
	seconds := end.Sub(pod.Status.StartTime.Time).Seconds()
	if end.IsZero() || seconds < 0 {
		return endedPod{}, false
	}
	return endedPod{pod.UID, end, kindOf(pod), seconds}, true
}
