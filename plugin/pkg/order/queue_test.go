//go:build !before1.37

package order

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	backend "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	testingclock "k8s.io/utils/clock/testing"

	"steersman.dev/plugin/internal/compat"
)

// fits is a plugin that refused a pod.
const fits = "Fits"

// newNode is an event after which pods that were refused may fit.
var newNode = fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}

// waitingLine is kube-scheduler's own queue with the plugin, and a node that is full.
type waitingLine struct {
	*backend.PriorityQueue
	t     *testing.T
	clock *testingclock.FakeClock
}

func line(t *testing.T, spec string) *waitingLine {
	t.Helper()
	metrics.Register()
	p, clock := plugin(t, spec)
	hints := backend.QueueingHintMap{newNode: {{
		PluginName:     fits,
		QueueingHintFn: func(klog.Logger, *v1.Pod, any, any) (fwk.QueueingHint, error) { return fwk.Queue, nil },
	}}}
	made := backend.NewTestQueue(t.Context(), p.Less,
		backend.WithClock(clock),
		backend.WithPreEnqueuePluginMap(map[string]map[string]compat.PreEnqueuePlugin{"here": {Name: p}}),
		backend.WithQueueingHintMapPerProfile(backend.QueueingHintMapPerProfile{"here": hints}))
	t.Cleanup(made.Close)
	return &waitingLine{made, t, clock}
}

// pop returns the next pod.
func (l *waitingLine) pop() *framework.QueuedPodInfo {
	l.t.Helper()
	popped, err := l.Pop(klog.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	return popped.(*framework.QueuedPodInfo)
}

// refuse tries so many pods, which fit nowhere.
func (l *waitingLine) refuse(count int) []string {
	l.t.Helper()
	var names []string
	var tried []*framework.QueuedPodInfo
	for range count {
		next := l.pop()
		tried, names = append(tried, next), append(names, next.Pod.Name)
	}
	for _, each := range tried {
		each.UnschedulablePlugins = sets.New(fits)
		if err := l.AddUnschedulablePodIfNotPresent(klog.Background(), each, l.SchedulingCycle()); err != nil {
			l.t.Fatal(err)
		}
		l.clock.Step(time.Millisecond) // the age of a pod is that of its last attempt
	}
	return names
}

// free lets pods be tried again, since a node may have room.
func (l *waitingLine) free() {
	l.MoveAllToActiveOrBackoffQueue(klog.Background(), newNode, nil, nil, nil)
}

func (l *waitingLine) expect(names []string, want ...string) {
	l.t.Helper()
	if !slices.Equal(names, want) {
		l.t.Errorf("%v, not %v", names, want)
	}
}

func TestPodsAreTriedInTheOrderAfterANodeHasRoom(t *testing.T) {
	for spec, want := range map[string][]string{
		"age":      {"a", "b", "c"},
		"shortest": {"b", "c", "a"},
		"smallest": {"c", "a", "b"},
		"largest":  {"b", "a", "c"},
		"area":     {"c", "b", "a"}, // 40 s on 1 CPU, 10 s on 8 CPUs, 60 s on 2 CPUs
	} {
		t.Run(spec, func(t *testing.T) {
			l := line(t, spec)
			for _, each := range []*v1.Pod{pod("a", 2, 60), pod("b", 8, 10), pod("c", 1, 40)} {
				l.Add(t.Context(), each)
				l.clock.Step(time.Millisecond)
			}
			l.expect(l.refuse(3), want...)
			l.clock.Step(time.Minute) // no backoff any more
			l.free()
			l.expect(l.refuse(3), want...)
		})
	}
}

func TestOrderFollowsTheWait(t *testing.T) {
	l := line(t, "wfp3")
	l.Add(t.Context(), pod("long", 1, 100))
	l.expect(l.refuse(1), "long")
	l.clock.Step(50 * time.Second)
	l.Add(t.Context(), pod("short", 1, 10))
	l.expect(l.refuse(1), "short")
	l.clock.Step(2 * time.Second)
	l.free()
	l.expect(l.refuse(2), "long", "short") // (52/100)³, (2/10)³
	l.clock.Step(48 * time.Second)
	l.free()
	l.expect(l.refuse(2), "short", "long") // (50/10)³, (100/100)³
}

func TestOrderHoldsAmongPodsInBackoff(t *testing.T) {
	l := line(t, "shortest")
	for _, each := range []*v1.Pod{pod("a", 1, 60), pod("b", 1, 10), pod("c", 1, 40)} {
		l.Add(t.Context(), each)
	}
	l.refuse(3)
	l.free()
	if active := l.PodsInActiveQ(); len(active) > 0 {
		t.Errorf("%d pods have no backoff", len(active))
	}
	l.expect(l.refuse(3), "b", "c", "a")
}

func TestNewPodOvertakesByScore(t *testing.T) {
	l := line(t, "shortest")
	l.Add(t.Context(), pod("a", 1, 60))
	l.Add(t.Context(), pod("b", 1, 10))
	l.expect(l.refuse(1), "b")
	l.Add(t.Context(), pod("c", 1, 5))
	l.expect(l.refuse(2), "c", "a")
}

func TestPodsThatAreDeletedOrChangedWhileTheyWait(t *testing.T) {
	l := line(t, "shortest")
	for _, each := range []*v1.Pod{pod("a", 1, 60), pod("b", 1, 10), pod("c", 1, 40)} {
		l.Add(t.Context(), each)
	}
	l.Delete(klog.Background(), pod("b", 1, 10))
	l.expect(l.refuse(2), "c", "a")
	l.Update(t.Context(), pod("a", 1, 60), pod("a", 1, 20))
	l.clock.Step(time.Minute)
	l.free()
	l.expect(l.refuse(2), "a", "c")
}
