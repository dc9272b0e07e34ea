package steersman

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/objectives"
	"steersman.dev/plugin/prometheus"
)

// told is a scheduler that keeps what it is told.
type told struct {
	*handle
	recorder  *events.FakeRecorder
	activated []string
}

func (t *told) EventRecorder() events.EventRecorderLogger { return t.recorder }
func (t *told) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	for key := range pods {
		t.activated = append(t.activated, key)
	}
}

// limiting is a plugin that knows these latencies, in milliseconds by node: node-0 and so on.
func limiting(t *testing.T, nodes []fwk.NodeInfo, latencies ...float64) (*Plugin, *told) {
	t.Helper()
	var values []prometheus.Value
	for n, latency := range latencies {
		values = append(values, prometheus.Value{
			Feature: prometheus.Latency, Node: fmt.Sprintf("node-%d", n), Value: latency,
		})
	}
	found := plugged(t, `{"policy": "best-fit"}`, nodes)
	there := &told{handle: &handle{nodes: nodes}, recorder: events.NewFakeRecorder(10)}
	found.handle = there
	snapshot := func() ([]fwk.NodeInfo, error) { return nodes, nil }
	found.limits = objectives.NewKeeper(prometheus.Fixed(prometheus.Defaults(), values, time.Now()), snapshot)
	return found, there
}

func limited(hard string) *v1.Pod {
	pod := podOf("1")
	pod.UID = "limited"
	pod.Annotations = map[string]string{"latencyHardConstraint": hard}
	return pod
}

// left is the nodes that are left to a pod, "" if it is not restricted.
func left(t *testing.T, plugin *Plugin, pod *v1.Pod, nodes []fwk.NodeInfo) (string, fwk.CycleState) {
	t.Helper()
	state := framework.NewCycleState()
	found, status := plugin.PreFilter(t.Context(), state, pod, nodes)
	if found == nil {
		if !status.IsSkip() {
			t.Errorf("status %v", status)
		}
		return "", state
	}
	return strings.Join(found.NodeNames.UnsortedList(), ","), state
}

func TestHardLimitsLeaveTheNodesThatKeepThem(t *testing.T) {
	nodes := nodesOf(3)
	nodes[2].(*framework.NodeInfo).AddPod(podOf("8")) // no room
	plugin, _ := limiting(t, nodes, 200, 30, 10)
	for _, each := range []struct {
		name, want string
		pod        *v1.Pod
	}{
		{"no limit", "", podOf("1")},
		{"one with room keeps it", "node-1", limited("100")},
		{"all with room keep it", "", limited("500")},
		{"none with room keeps it", "", limited("20")},
	} {
		if found, _ := left(t, plugin, each.pod, nodes); found != each.want {
			t.Errorf("%s: left are %q", each.name, found)
		}
	}
	if _, status := plugin.SignPod(t.Context(), limited("100")); status.IsSuccess() {
		t.Error("a pod with a limit is signed")
	}
	plugin.limits = nil
	if found, _ := left(t, plugin, limited("100"), nodes); found != "" {
		t.Error("there is no telemetry, and yet a filter")
	}
}

func TestAPodThatOtherFiltersKeepFromThereIsTriedWithoutItsLimit(t *testing.T) {
	nodes := nodesOf(2)
	plugin, scheduler := limiting(t, nodes, 200, 30)
	pod := limited("100")
	for range 2 { // where there is no room at all, the limit counts again when something changes
		found, state := left(t, plugin, pod, nodes)
		if found != "node-1" {
			t.Fatalf("left are %q", found)
		}
		if _, status := plugin.PostFilter(t.Context(), state, pod, nil); !status.IsRejected() {
			t.Errorf("status %v", status)
		}
		if found, state = left(t, plugin, pod, nodes); found != "" {
			t.Errorf("still left are %q", found)
		}
		plugin.PostFilter(t.Context(), state, pod, nil)
	}
	if len(scheduler.activated) != 2 {
		t.Errorf("activated %v", scheduler.activated)
	}
}

func TestFewPodsAreRemembered(t *testing.T) {
	pods := newRelaxed()
	for i := range 2 * mostRelaxed {
		pods.put(types.UID(fmt.Sprint(i)))
	}
	if len(pods.pods) != mostRelaxed || pods.take("0") || !pods.take(types.UID(fmt.Sprint(mostRelaxed))) {
		t.Errorf("%d pods", len(pods.pods))
	}
}

func TestAMalformedLimitIsToldAndIgnored(t *testing.T) {
	nodes := nodesOf(2)
	plugin, scheduler := limiting(t, nodes, 200, 30)
	if found, _ := left(t, plugin, limited("much"), nodes); found != "" {
		t.Errorf("left are %q", found)
	}
	if said := <-scheduler.recorder.Events; !strings.HasPrefix(said, "Warning LatencyLimitIgnored annotation latencyHard") {
		t.Error(said)
	}
}

func TestAPanicIsNoReasonToRefuse(t *testing.T) {
	plugin, _ := limiting(t, nodesOf(1), 30)
	plugin.limits = &objectives.Keeper{}
	if found, _ := left(t, plugin, limited("100"), nodesOf(1)); found != "" {
		t.Errorf("left are %q", found)
	}
}
