package order

import (
	"math"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"steersman.dev/plugin/internal/orders"
)

// rank decides among pods of the same priority: the lowest score goes first, the first arrival on ties.
type rank struct {
	score   float64
	arrived time.Duration // from the start of the scheduler
}

var last = rank{math.Inf(1), math.MaxInt64}

func (r rank) before(other rank) bool {
	return r.score < other.score || r.score == other.score && r.arrived < other.arrived
}

// queue holds the ranks of the pods that wait. Several goroutines may use it.
type queue struct {
	order    *orders.Order
	clock    func() time.Time
	started  time.Time
	runTimes *orders.RunTimes
	cluster  *cluster
	synced   func() // waits until the cluster is known; called once
	once     sync.Once

	mutex   sync.RWMutex
	pods    map[types.UID]*waitingPod
	waiting int                // those of them that wait
	ended   map[types.UID]bool // pods that were seen to end, nil once it is known which ended before
}

type waitingPod struct {
	rank
	pod     *v1.Pod
	kind    *orders.PodKind
	seconds float64 // the estimate that is known at the arrival, NaN: from the history
	waits   bool    // it is neither bound nor deleted
	missing bool    // it was not found at the last look
}

func newQueue(order *orders.Order, clock func() time.Time) *queue {
	made := &queue{
		order: order, clock: clock, started: clock(), runTimes: orders.NewRunTimes(), cluster: newCluster(),
		synced: func() {}, pods: map[types.UID]*waitingPod{},
	}
	if order.LearnsRunTimes() {
		made.ended = map[types.UID]bool{}
	}
	return made
}

// enter computes the score of a pod that enters the queue, now.
func (q *queue) enter(pod *v1.Pod) {
	q.once.Do(q.synced)
	now := q.clock().Sub(q.started)
	q.mutex.Lock()
	defer q.mutex.Unlock()
	entry := q.pods[pod.UID]
	if entry == nil {
		entry = &waitingPod{rank: rank{arrived: now}}
		q.pods[pod.UID] = entry
	}
	if !entry.waits {
		entry.waits = true
		q.waiting++
	}
	entry.missing = false
	if entry.pod != pod { // it is new, or was changed
		entry.pod, entry.kind = pod, kindOf(pod)
		entry.seconds = statedSeconds(pod, q.order.Estimate)
	}
	entry.score = q.score(entry, now)
}

func (q *queue) score(entry *waitingPod, now time.Duration) float64 {
	size, free := q.cluster.look()
	pod := orders.Pod{
		Seconds: entry.seconds, Size: size.of(entry.kind.Requests),
		Wait: max(now-entry.arrived, 0).Seconds(), Arrived: entry.arrived.Seconds(),
	}
	if math.IsNaN(pod.Seconds) && q.order.UsesEstimates() {
		pod.Seconds, pod.Spread = q.runTimes.Estimate(entry.kind)
	}
	return q.order.Score(&pod, &orders.Cluster{Capacity: size.capacity(), Free: free, Waiting: q.waiting})
}

// rankOf returns the rank of a pod, and whether it is known.
func (q *queue) rankOf(uid types.UID) (rank, bool) {
	q.mutex.RLock()
	defer q.mutex.RUnlock()
	if entry := q.pods[uid]; entry != nil {
		return entry.rank, true
	}
	return last, false
}

// leave counts a pod no more that was bound or deleted. Its rank stays until forget, since kube-scheduler's queue hears
// of it later, and a heap must not see a rank change.
func (q *queue) leave(uid types.UID) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.stopWaiting(q.pods[uid])
}

func (q *queue) stopWaiting(entry *waitingPod) {
	if entry != nil && entry.waits {
		entry.waits = false
		q.waiting--
	}
}

// forget drops the pods that do not wait now, and did not at the last call. It finds them whatever order events come
// in: a pod may enter the queue after its deletion was seen here.
func (q *queue) forget(waits func(*v1.Pod) bool) {
	q.mutex.RLock()
	known := make([]*v1.Pod, 0, len(q.pods))
	for _, entry := range q.pods {
		known = append(known, entry.pod)
	}
	q.mutex.RUnlock()
	for _, pod := range known {
		found := waits(pod)
		q.mutex.Lock()
		entry := q.pods[pod.UID]
		switch {
		case entry == nil:
		case found:
			entry.missing = false
		case entry.missing:
			q.stopWaiting(entry)
			delete(q.pods, pod.UID)
		default:
			entry.missing = true
		}
		q.mutex.Unlock()
	}
}
