package order

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"steersman.dev/plugin/internal/compat"
)

const (
	// forgetInterval is the interval between two looks for pods that are gone.
	forgetInterval = time.Minute
	// syncTimeout is how long the first pod waits for the nodes to be known, on which its size depends, and for the run
	// times of pods that ended before. kube-scheduler schedules nothing before the nodes are known.
	syncTimeout = 30 * time.Second
)

// follow keeps the queue up to date with the cluster until the context is done.
func (q *queue) follow(ctx context.Context, factory informers.SharedInformerFactory, client kubernetes.Interface) error {
	pods, nodes := factory.Core().V1().Pods(), factory.Core().V1().Nodes()
	podEvents, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { q.onPod(obj.(*v1.Pod)) },
		UpdateFunc: func(_, obj any) { q.onPod(obj.(*v1.Pod)) },
		DeleteFunc: compat.OnDelete(q.onEnd),
	})
	if err != nil {
		return err
	}
	nodeEvents, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { q.onNode(nil, obj.(*v1.Node)) },
		UpdateFunc: func(before, obj any) { q.onNode(before.(*v1.Node), obj.(*v1.Node)) },
		DeleteFunc: compat.OnDelete(func(node *v1.Node) { q.cluster.setNode(node.Name, nil) }),
	})
	if err != nil {
		return err
	}
	learned := make(chan struct{})
	go func() {
		defer close(learned)
		if q.order.LearnsRunTimes() {
			q.learnFromEnded(ctx, client)
		}
	}()
	q.synced = func() {
		waiting, cancel := context.WithTimeout(ctx, syncTimeout)
		defer cancel()
		cache.WaitForCacheSync(waiting.Done(), podEvents.HasSynced, nodeEvents.HasSynced)
		select {
		case <-learned:
		case <-waiting.Done():
		}
	}
	lister := pods.Lister()
	go wait.UntilWithContext(ctx, func(context.Context) {
		q.forget(func(pod *v1.Pod) bool {
			listed, err := lister.Pods(pod.Namespace).Get(pod.Name)
			return err == nil && listed.UID == pod.UID && listed.Spec.NodeName == ""
		})
	}, forgetInterval)
	return nil
}

func (q *queue) onNode(before, node *v1.Node) {
	// Heartbeats change neither.
	if before != nil && sizeOfNode(before) == sizeOfNode(node) {
		return
	}
	q.cluster.setNode(node.Name, node)
}

// onPod notes a pod that is bound or has ended.
func (q *queue) onPod(pod *v1.Pod) {
	switch {
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		q.onEnd(pod)
	case pod.Spec.NodeName != "" && !q.cluster.holds(pod.UID):
		q.cluster.bind(pod.UID, requestsOf(pod), q.clock())
		q.leave(pod.UID)
	}
}

// onEnd notes a pod that has ended or was deleted, and learns its run time.
func (q *queue) onEnd(pod *v1.Pod) {
	q.leave(pod.UID)
	began, ran := q.cluster.release(pod.UID)
	if !ran {
		return
	}
	q.mutex.Lock()
	if q.ended != nil {
		q.ended[pod.UID] = true
	}
	q.mutex.Unlock()
	if started := pod.Status.StartTime; started != nil {
		began = started.Time
	}
	q.runTimes.Note(kindOf(pod), q.clock().Sub(began).Seconds())
}
