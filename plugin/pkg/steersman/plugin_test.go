package steersman

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/internal/breaker"
	"steersman.dev/plugin/internal/compat"
	"steersman.dev/plugin/internal/scoring"
)

// handle is what the plugin needs of a scheduler. What minors have added to these interfaces is not called.
type handle struct {
	compat.Handle
	profile string
	nodes   []fwk.NodeInfo
}

func (h *handle) ProfileName() string                       { return h.profile }
func (h *handle) SnapshotSharedLister() compat.SharedLister { return sharedLister{nodes: h.nodes} }
func (h *handle) SharedInformerFactory() informers.SharedInformerFactory {
	return informers.NewSharedInformerFactory(nil, 0) // which nobody starts
}

type sharedLister struct {
	compat.SharedLister
	nodes []fwk.NodeInfo
}

func (l sharedLister) NodeInfos() compat.NodeInfoLister { return nodeInfoLister{nodes: l.nodes} }

type nodeInfoLister struct {
	compat.NodeInfoLister
	nodes []fwk.NodeInfo
}

func (l nodeInfoLister) List() ([]fwk.NodeInfo, error) { return l.nodes, nil }

func nodesOf(count int) []fwk.NodeInfo {
	var result []fwk.NodeInfo
	for n := range count {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", n)}}
		node.Status.Allocatable = v1.ResourceList{
			v1.ResourceCPU:    resource.MustParse("8"),
			v1.ResourceMemory: resource.MustParse("32Gi"),
			v1.ResourcePods:   resource.MustParse("110"),
		}
		info := framework.NewNodeInfo()
		info.SetNode(node)
		result = append(result, info)
	}
	return result
}

func podOf(cpu string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default", UID: "pod"}}
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cpu),
	}}}}
	return pod
}

// profiles are told apart by their metrics, so each test has its own.
func plugged(t *testing.T, args string, nodes []fwk.NodeInfo) *Plugin {
	t.Helper()
	result, err := New(t.Context(), given(args), &handle{profile: t.Name(), nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	return result.(*Plugin)
}

// cycle is a scheduling cycle: the score of each node.
func cycle(t *testing.T, plugin *Plugin, pod *v1.Pod, nodes []fwk.NodeInfo) ([]int64, fwk.CycleState) {
	t.Helper()
	state := framework.NewCycleState()
	if status := plugin.PreScore(t.Context(), state, pod, nodes); !status.IsSuccess() {
		t.Errorf("PreScore: %v", status)
	}
	return scoresOf(t, plugin, state, pod, nodes), state
}

func scoresOf(t *testing.T, plugin *Plugin, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) []int64 {
	t.Helper()
	listed := make(compat.NodeScoreList, len(nodes))
	for i, node := range nodes {
		score, status := plugin.Score(t.Context(), state, pod, node)
		if !status.IsSuccess() {
			t.Errorf("Score: %v", status)
		}
		listed[i].Name, listed[i].Score = node.Node().Name, score
	}
	if status := plugin.NormalizeScore(t.Context(), state, pod, listed); !status.IsSuccess() {
		t.Errorf("NormalizeScore: %v", status)
	}
	result := make([]int64, len(nodes))
	for i := range result {
		result[i] = listed[i].Score
	}
	return result
}

func allNeutral(scores []int64) bool {
	for _, score := range scores {
		if score != scoring.Neutral {
			return false
		}
	}
	return true
}

func counted(t *testing.T, outcome, reason string) float64 {
	t.Helper()
	vector, label := decisions, outcome
	if reason != "" {
		vector, label = unscored, reason
	}
	count, err := testutil.GetCounterMetricValue(vector.WithLabelValues(t.Name(), label))
	if err != nil {
		t.Fatal(err)
	}
	return count
}

func TestThePolicyDecides(t *testing.T) {
	nodes := nodesOf(4)
	nodes[2].(*framework.NodeInfo).AddPod(podOf("3"))
	plugin := plugged(t, `{"policy": "best-fit", "timeout": "5s"}`, nodes)
	scores, state := cycle(t, plugin, podOf("1"), nodes)
	for n, score := range scores {
		if (score == scoring.Best) != (n == 2) {
			t.Errorf("%v", scores)
		}
	}
	plugin.PostBind(t.Context(), state, podOf("1"), "node-2")
	plugin.PostBind(t.Context(), state, podOf("1"), "node-1")
	for _, agrees := range []string{"true", "false"} {
		if count, _ := testutil.GetCounterMetricValue(agreement.WithLabelValues(t.Name(), agrees)); count != 1 {
			t.Errorf("%v pods where it agrees: %s", count, agrees)
		}
	}
	if counted(t, "scored", "") != 1 || scoring.DeviceSelectorFor(t.Name()) != plugin.source.(scoring.DeviceSelector) {
		t.Error("it is not counted, or does not choose devices")
	}
}

func TestScoreWithoutPreScoreIsNeutral(t *testing.T) {
	nodes := nodesOf(2)
	plugin := plugged(t, `{"policy": "best-fit"}`, nodes)
	if scores := scoresOf(t, plugin, framework.NewCycleState(), podOf("1"), nodes); !allNeutral(scores) {
		t.Errorf("%v", scores)
	}
}

// source is one that does what it is told.
type source func(ctx context.Context, out []int64) error

func (s source) Scores(ctx context.Context, _ *v1.Pod, _ []fwk.NodeInfo, out []int64) error {
	return s(ctx, out)
}

func TestWhateverGoesWrongAllNodesAreEqual(t *testing.T) {
	nodes := nodesOf(3)
	for _, each := range []struct {
		name, reason string
		blamed       bool // the source, by the breaker
		act          source
	}{
		{"error", "failed", true, func(context.Context, []int64) error { return errors.New("no") }},
		{"panic", "panic", true, func(context.Context, []int64) error { panic("oh") }},
		{"beyond the end", "panic", true, func(_ context.Context, out []int64) error { out[len(out)] = 1; return nil }},
		{"hangs", "deadline", true, func(ctx context.Context, _ []int64) error { <-ctx.Done(); return ctx.Err() }},
		{"too high", "range", true, func(_ context.Context, out []int64) error { out[1] = 101; return nil }},
		{"too low", "range", true, func(_ context.Context, out []int64) error { out[2] = -1; return nil }},
		{"declines", "declined", false, func(context.Context, []int64) error {
			return &scoring.Error{Err: errors.New("no"), Reason: "declined", Harmless: true}
		}},
	} {
		t.Run(each.name, func(t *testing.T) {
			plugin := plugged(t, `{"policy": "best-fit", "timeout": "20ms", "breaker": {"failures": 3, "open": "1h"}}`, nodes)
			calls := 0
			plugin.source = source(func(ctx context.Context, out []int64) error {
				calls++
				out[0] = scoring.Best
				return each.act(ctx, out)
			})
			for range 5 {
				began := time.Now()
				if scores, _ := cycle(t, plugin, podOf("1"), nodes); !allNeutral(scores) {
					t.Errorf("%v", scores)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("it took %s", took)
				}
			}
			asked, refused := 5, 0.0
			if each.blamed {
				asked, refused = 3, 2
			}
			if calls != asked || counted(t, "", each.reason) != float64(asked) || counted(t, "", "breaker") != refused {
				t.Errorf("asked %d times", calls)
			}
			if (plugin.breaker.State() == breaker.Open) != each.blamed || counted(t, "neutral", "") != 5 {
				t.Errorf("the breaker is %s", plugin.breaker.State())
			}
		})
	}
}

func TestAShadowChangesNothing(t *testing.T) {
	nodes := nodesOf(3)
	nodes[1].(*framework.NodeInfo).AddPod(podOf("3"))
	plugin := plugged(t, `{"mode": "shadow", "policy": "best-fit", "timeout": "5s"}`, nodes)
	scores, state := cycle(t, plugin, podOf("1"), nodes)
	if !allNeutral(scores) || counted(t, "", "shadow") != 1 || scoring.DeviceSelectorFor(t.Name()) != nil {
		t.Errorf("%v", scores)
	}
	plugin.PostBind(t.Context(), state, podOf("1"), "node-1")
	if count, _ := testutil.GetCounterMetricValue(agreement.WithLabelValues(t.Name(), "true")); count != 1 {
		t.Errorf("%v pods where it agrees", count)
	}
}

func TestSignPod(t *testing.T) {
	odd := podOf("1")
	odd.Annotations = map[string]string{"alibabacloud.com/gpu-count": "many"}
	for _, each := range []struct {
		name, args string
		pod        *v1.Pod
		signed     bool
	}{
		{"whole-numbered scores", `{"policy": "gpu-packing"}`, podOf("1"), true},
		{"scores that are rounded", `{"policy": "dot-product"}`, podOf("1"), false},
		{"a pod that makes no sense", `{"policy": "gpu-packing"}`, odd, false},
		{"no policy yet", `{"policyFile": "/nowhere"}`, podOf("1"), false},
		{"a shadow", `{"mode": "shadow", "policy": "gpu-packing"}`, podOf("1"), false},
		{"a service", `{"mode": "service", "endpoint": "http://127.0.0.1:1"}`, podOf("1"), false},
	} {
		fragments, status := plugged(t, each.args, nil).SignPod(t.Context(), each.pod)
		if status.IsSuccess() != each.signed || (len(fragments) == 1) != each.signed {
			t.Errorf("%s: %v, %v", each.name, fragments, status)
		}
	}
	plugin := plugged(t, `{"policy": "gpu-packing"}`, nil)
	small, _ := plugin.SignPod(t.Context(), podOf("1"))
	same, _ := plugin.SignPod(t.Context(), podOf("1000m"))
	large, _ := plugin.SignPod(t.Context(), podOf("2"))
	if small[0] != same[0] || small[0] == large[0] {
		t.Errorf("%v, %v, %v", small, same, large)
	}
}

func TestNewRefusesWhatMakesNoSense(t *testing.T) {
	for _, each := range []struct{ args, says string }{
		{`{"policy": "fgd"}`, `args.policyFile: is missing; policy "fgd" needs`},
		{`{"policy": "best"}`, `args.policy: unknown policy "best"; known are balanced-allocation`},
		{`{"policy": "p0"}`, `args.policy: "p0" decides by nodes' metrics; expected mode: service`},
		{`{"policy": "best-fit", "endpoint": "nowhere"}`, "args.endpoint"},
		{`{"mode": "service", "endpoint": "nowhere"}`, "args.endpoint"},
	} {
		_, err := New(t.Context(), given(each.args), &handle{profile: t.Name()})
		if err == nil || !strings.Contains(err.Error(), each.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", each.args, err)
		}
	}
}

func TestOneComplaintAMinuteAndReason(t *testing.T) {
	said := newThrottledLogger(klog.Background())
	now := time.Now()
	said.now = func() time.Time { return now }
	for range 3 {
		said.log(noScores, "failed", errors.New("no"))
	}
	failed := logKey{noScores, "failed"}
	first := said.last[failed]
	now = now.Add(59 * time.Second)
	if said.log(noScores, "failed", errors.New("no")); said.last[failed] != first {
		t.Error("it complains again")
	}
	now = now.Add(time.Second)
	if said.log(noScores, "failed", errors.New("no")); said.last[failed] != now {
		t.Error("it does not complain again")
	}
}
