// Package order is a plugin for kube-scheduler that orders its queue (QueueSort): who goes next among waiting pods of
// the same priority, by the orders of steersman.
//
// The queue is a heap, so that the rank of a pod must not change while it is in it. Scores that depend on the time, on
// what has ended and on the cluster are therefore computed when a pod enters the queue (PreEnqueue), and again whenever
// an event moves a waiting pod back into it.
package order

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/compat"
	"steersman.dev/plugin/internal/orders"
	"steersman.dev/plugin/internal/pluginargs"
)

// Name is what configurations call the plugin.
const Name = "SteersmanOrder"

var (
	_ compat.QueueSortPlugin   = &Plugin{}
	_ compat.PreEnqueuePlugin  = &Plugin{}
	_ compat.EnqueueExtensions = &Plugin{}
)

// Args are the plugin's arguments in a KubeSchedulerConfiguration.
type Args struct {
	// Order is NAME[@ESTIMATES], an order file, or a policy file with an order: age (the default), shortest, wfp3@stated,
	// /etc/order.safetensors.
	Order string `json:"order"`
}

// Plugin orders the queue for a profile. All profiles of a scheduler have one queue, and share what is known of its
// pods.
type Plugin struct {
	order  *orders.Order
	queue  *queue // nil with age, which needs nothing of pods
	logger klog.Logger
	warn   sync.Once
}

// queues are those of this process by the informers of their scheduler, which all of its profiles share.
var (
	queuesMutex sync.Mutex
	queues      = map[informers.SharedInformerFactory]*queue{}
)

// New makes the plugin of a profile. It fails if kube-scheduler cannot follow the order.
func New(ctx context.Context, given runtime.Object, handle compat.Handle) (compat.Plugin, error) {
	args := Args{Order: "age"}
	if err := pluginargs.Decode(given, &args); err != nil {
		return nil, err
	}
	order, err := orders.Parse(args.Order)
	if err != nil {
		return nil, fmt.Errorf("args.order: %w", err)
	}
	logger := klog.FromContext(ctx).WithValues("plugin", Name)
	plugin := &Plugin{order: order, logger: logger}
	if order.Kind != orders.Age {
		if plugin.queue, err = sharedQueue(ctx, order, handle); err != nil {
			return nil, err
		}
	}
	logger.Info("Order of the queue", "order", order.Name, "profile", compat.ProfileName(handle))
	return plugin, nil
}

// sharedQueue returns the queue of a scheduler, which its first profile makes. kube-scheduler itself checks that all
// profiles have the same arguments.
func sharedQueue(ctx context.Context, order *orders.Order, handle compat.Handle) (*queue, error) {
	factory := handle.SharedInformerFactory()
	queuesMutex.Lock()
	defer queuesMutex.Unlock()
	if found := queues[factory]; found != nil {
		return found, nil
	}
	made := newQueue(order, time.Now)
	if err := made.follow(ctx, factory, handle.ClientSet()); err != nil {
		return nil, err
	}
	queues[factory] = made
	context.AfterFunc(ctx, func() {
		queuesMutex.Lock()
		defer queuesMutex.Unlock()
		delete(queues, factory)
	})
	return made, nil
}

func (*Plugin) Name() string { return Name }

// EventsToRegister returns none: no pod is ever held back here.
func (*Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) { return nil, nil }

// PreEnqueue computes the score of a pod that enters the queue. It always succeeds.
func (p *Plugin) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	// A gated pod does not wait for a node: its wait begins when its gates are gone.
	if p.queue != nil && len(pod.Spec.SchedulingGates) == 0 {
		p.queue.enter(pod)
	}
	return nil
}

// Less reports whether one goes before the other: by priority, score and age. With the order age it is that of
// kube-scheduler's PrioritySort, to which a pod is as old as its last attempt.
func (p *Plugin) Less(one, other compat.QueuedEntity) bool {
	if a, b := compat.Priority(one), compat.Priority(other); a != b {
		return a > b
	}
	if p.queue != nil {
		a, b := p.rank(one), p.rank(other)
		if a != b {
			return a.before(b)
		}
	}
	return one.GetTimestamp().Before(other.GetTimestamp())
}

// rank returns the rank of a pod; a pod group has that of its first one.
func (p *Plugin) rank(entity compat.QueuedEntity) rank {
	if pod := compat.PodOf(entity); pod != nil {
		return p.rankOf(pod)
	}
	first := last
	for _, pod := range compat.PodsOf(entity) {
		if each := p.rankOf(pod); each.before(first) {
			first = each
		}
	}
	return first
}

// rankOf returns the rank of a pod. Once it tells that a pod has none; one that was deleted may have lost it already.
func (p *Plugin) rankOf(pod *v1.Pod) rank {
	rank, known := p.queue.rankOf(pod.UID)
	if !known {
		p.warn.Do(func() {
			p.logger.Error(nil, "A pod is in the queue without a score; enable the plugin at preEnqueue, too "+
				"(multiPoint does). Such pods go last, by age", "pod", klog.KObj(pod))
		})
	}
	return rank
}
