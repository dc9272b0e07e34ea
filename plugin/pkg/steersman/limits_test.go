package steersman

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/internal/breaker"
	"steersman.dev/plugin/internal/remote"
)

// told is a scheduler that keeps what it is told.
type told struct {
	*handle
	recorder  *events.FakeRecorder
	activated []string
}

func (t *told) EventRecorder() eventRecorder { return t.recorder }
func (t *told) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	for key := range pods {
		t.activated = append(t.activated, key)
	}
}

// latencies is a service that knows these latencies, in milliseconds by node: node-0 and so on.
type latencies []float64

func (l latencies) Limit(_ context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) (*remote.Limit, error) {
	text := pod.Annotations["latencyHardConstraint"]
	hard, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return &remote.Limit{Ignored: []string{"annotation latencyHardConstraint: is no number"}}, nil
	}
	var kept []string
	for _, node := range nodes {
		var n int
		if _, err := fmt.Sscanf(node.Node().Name, "node-%d", &n); err != nil {
			return nil, err
		}
		if l[n] <= hard {
			kept = append(kept, node.Node().Name)
		}
	}
	switch len(kept) {
	case 0:
		return &remote.Limit{Outcome: "kept by no node"}, nil
	case len(nodes):
		return &remote.Limit{Outcome: "kept safely"}, nil
	}
	return &remote.Limit{Nodes: kept, Outcome: "kept safely"}, nil
}

// limiting is a plugin whose service knows these latencies.
func limiting(t *testing.T, nodes []fwk.NodeInfo, known ...float64) (*Plugin, *told) {
	t.Helper()
	result := plugged(t, `{"policy": "best-fit"}`, nodes)
	there := &told{handle: &handle{nodes: nodes}, recorder: events.NewFakeRecorder(10)}
	result.handle, result.limits = there, latencies(known)
	return result, there
}

func observeLimit(hard string) *v1.Pod {
	pod := podOf("1")
	pod.UID = "limited"
	pod.Annotations = map[string]string{"latencyHardConstraint": hard}
	return pod
}

// left is the nodes that are left to a pod, "" if it is not restricted.
func left(t *testing.T, plugin *Plugin, pod *v1.Pod, nodes []fwk.NodeInfo) (string, fwk.CycleState) {
	t.Helper()
	state := framework.NewCycleState()
	preFilter, status := plugin.PreFilter(t.Context(), state, pod, nodes)
	if preFilter == nil {
		if !status.IsSkip() {
			t.Errorf("status %v", status)
		}
		return "", state
	}
	return strings.Join(preFilter.NodeNames.UnsortedList(), ","), state
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
		{"one with room keeps it", "node-1", observeLimit("100")},
		{"all with room keep it", "", observeLimit("500")},
		{"none with room keeps it", "", observeLimit("20")},
	} {
		if result, _ := left(t, plugin, each.pod, nodes); result != each.want {
			t.Errorf("%s: left are %q", each.name, result)
		}
	}
	if _, status := plugin.SignPod(t.Context(), observeLimit("100")); status.IsSuccess() {
		t.Error("a pod with a limit is signed")
	}
	plugin.limits = nil
	if result, _ := left(t, plugin, observeLimit("100"), nodes); result != "" {
		t.Error("there is no service, and yet a filter")
	}
}

func TestAPodThatOtherFiltersKeepFromThereIsTriedWithoutItsLimit(t *testing.T) {
	nodes := nodesOf(2)
	plugin, scheduler := limiting(t, nodes, 200, 30)
	pod := observeLimit("100")
	for range 2 { // where there is no room at all, the limit counts again when something changes
		result, state := left(t, plugin, pod, nodes)
		if result != "node-1" {
			t.Fatalf("left are %q", result)
		}
		if _, status := plugin.PostFilter(t.Context(), state, pod, nil); !status.IsRejected() {
			t.Errorf("status %v", status)
		}
		if result, state = left(t, plugin, pod, nodes); result != "" {
			t.Errorf("still left are %q", result)
		}
		plugin.PostFilter(t.Context(), state, pod, nil)
	}
	if len(scheduler.activated) != 2 {
		t.Errorf("activated %v", scheduler.activated)
	}
}

func TestNothingIsEvictedForALimitBeforeOtherNodesWereTried(t *testing.T) {
	nodes := nodesOf(2)
	plugin, _ := limiting(t, nodes, 200, 30)
	pod := observeLimit("100")
	refused := func() bool {
		result, state := left(t, plugin, pod, nodes)
		if status := plugin.Filter(t.Context(), state, pod, nodes[1]); !status.IsSuccess() {
			t.Errorf("with %q left the filter says %v", result, status)
		}
		dryRun := state.Clone()
		plugin.PreFilterExtensions().RemovePod(t.Context(), dryRun, pod, nil, nodes[1])
		status := plugin.Filter(t.Context(), dryRun, pod, nodes[1])
		plugin.PostFilter(t.Context(), state, pod, nil)
		return status.Code() == fwk.Unschedulable
	}
	if !refused() {
		t.Error("a pod may be evicted for a limit")
	}
	if refused() {
		t.Error("without its limit a pod cannot preempt")
	}
}

// remembered puts a pod among those that are tried without their limit.
func remembered(plugin *Plugin, uid string) *v1.Pod {
	pod, state := observeLimit("100"), framework.NewCycleState()
	pod.UID = types.UID(uid)
	state.Write(limitAppliedKey, marker{})
	plugin.PostFilter(context.Background(), state, pod, nil)
	return pod
}

func TestFewPodsAreRemembered(t *testing.T) {
	plugin, _ := limiting(t, nodesOf(2), 200, 30)
	var last *v1.Pod
	for i := range maxRetries + 1 {
		last = remembered(plugin, fmt.Sprint(i))
	}
	first := last.DeepCopy()
	first.UID = "0"
	if plugin.retryWithoutLimit.Len() != maxRetries {
		t.Errorf("%d pods", plugin.retryWithoutLimit.Len())
	}
	for _, each := range []struct {
		pod  *v1.Pod
		left string
	}{{first, "node-1"}, {last, ""}, {last, "node-1"}} {
		if result, _ := left(t, plugin, each.pod, nodesOf(2)); result != each.left {
			t.Errorf("pod %s: left are %q, not %q", each.pod.UID, result, each.left)
		}
	}
}

func TestAPodThatWasTriedBeforeIsRememberedAsLongAsOthers(t *testing.T) {
	plugin, _ := limiting(t, nodesOf(2), 200, 30)
	pod := remembered(plugin, "twice")
	if result, _ := left(t, plugin, pod, nodesOf(2)); result != "" {
		t.Error("the pod is not tried without its limit")
	}
	for i := range maxRetries - 1 {
		remembered(plugin, fmt.Sprint(i))
	}
	remembered(plugin, "twice")
	if result, _ := left(t, plugin, pod, nodesOf(2)); result != "" {
		t.Error("a pod is forgotten since it was tried before")
	}
}

func TestAMalformedLimitIsToldAndIgnored(t *testing.T) {
	nodes := nodesOf(2)
	plugin, scheduler := limiting(t, nodes, 200, 30)
	if result, _ := left(t, plugin, observeLimit("much"), nodes); result != "" {
		t.Errorf("left are %q", result)
	}
	if said := <-scheduler.recorder.Events; !strings.HasPrefix(said, "Warning LatencyLimitIgnored annotation latencyHard") {
		t.Error(said)
	}
}

func TestAPanicIsNoReasonToRefuse(t *testing.T) {
	plugin, _ := limiting(t, nodesOf(1), 30)
	plugin.limits = latencies{} // it knows no node
	if result, _ := left(t, plugin, observeLimit("100"), nodesOf(1)); result != "" {
		t.Errorf("left are %q", result)
	}
}

// failing is a service that gives no answer.
type failing struct{ asked int }

func (f *failing) Limit(ctx context.Context, _ *v1.Pod, _ []fwk.NodeInfo) (*remote.Limit, error) {
	f.asked++
	if _, there := ctx.Deadline(); !there {
		return nil, errors.New("there is no deadline")
	}
	return nil, context.DeadlineExceeded
}

func TestALimitThatIsNotAppliedHasALogLineOfItsOwn(t *testing.T) {
	plugin, _ := limiting(t, nodesOf(2), 200, 30)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	plugin.logger = newThrottledLogger(logger)
	plugin.source = source(func(context.Context, []int64) error { return context.DeadlineExceeded })
	plugin.limits = &failing{}
	for range 2 {
		cycle(t, plugin, observeLimit("100"), nodesOf(2))
		left(t, plugin, observeLimit("100"), nodesOf(2))
	}
	said := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	for _, text := range []string{"Nodes get no scores of the policy", "The latency limit was not applied"} {
		if strings.Count(said, text) != 1 {
			t.Errorf("%q is not there once in\n%s", text, said)
		}
	}
}

func TestAPodWithASoftLimitAloneIsNoneWithAHardOne(t *testing.T) {
	plugin, _ := limiting(t, nodesOf(2), 200, 30)
	service := &failing{}
	plugin.limits = service
	pod := podOf("1")
	pod.Annotations = map[string]string{"latencySoftConstraint": "100"}
	if result, _ := left(t, plugin, pod, nodesOf(2)); result != "" || service.asked != 1 {
		t.Errorf("asked %d times, left are %q", service.asked, result)
	}
	if value, _ := testutil.GetCounterMetricValue(latencyLimits.WithLabelValues(t.Name(), "no_answer")); value != 0 {
		t.Errorf("%v hard limits without an answer", value)
	}
}

func TestTheBreakerOfLimitsIsPublished(t *testing.T) {
	plugin, _ := limiting(t, nodesOf(2), 200, 30)
	plugin.limits = &failing{}
	for range 5 {
		left(t, plugin, observeLimit("100"), nodesOf(2))
	}
	plugin.observeBreakers(true)
	for name, open := range map[string]float64{"scores": 0, "limits": 1} {
		gauge := breakerState.WithLabelValues(t.Name(), name, "open")
		if value, err := testutil.GetGaugeMetricValue(gauge); err != nil || value != open {
			t.Errorf("%s: %v, %v", name, value, err)
		}
	}
}

func TestWithoutAnAnswerThereIsNoLimit(t *testing.T) {
	plugin, _ := limiting(t, nodesOf(2), 200, 30)
	service := &failing{}
	plugin.limits = service
	for range 8 {
		if result, _ := left(t, plugin, observeLimit("100"), nodesOf(2)); result != "" {
			t.Errorf("left are %q", result)
		}
	}
	if value, _ := testutil.GetCounterMetricValue(latencyLimits.WithLabelValues(t.Name(), "no_answer")); value != 8 {
		t.Errorf("%v limits without an answer", value)
	}
	if service.asked != 5 || plugin.limitBreaker.State() != breaker.Open || plugin.breaker.State() != breaker.Closed {
		t.Errorf("asked %d times, the breaker is %s", service.asked, plugin.limitBreaker.State())
	}
	if result, _ := left(t, plugin, podOf("1"), nodesOf(2)); result != "" || service.asked != 5 {
		t.Error("the service is asked about a pod without a limit")
	}
}
