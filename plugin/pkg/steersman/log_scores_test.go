package steersman

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/internal/scoring"
)

// logged is what a scheduling cycle and a binding log.
func logged(t *testing.T, plugin *Plugin, nodes []fwk.NodeInfo, bound string) string {
	t.Helper()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	ctx := klog.NewContext(t.Context(), logger)
	state := framework.NewCycleState()
	plugin.PreScore(ctx, state, podOf("1"), nodes)
	plugin.PostBind(ctx, state, podOf("1"), bound)
	return logger.GetSink().(ktesting.Underlier).GetBuffer().String()
}

func TestScoresAreLoggedWhereTheyAreAskedFor(t *testing.T) {
	nodes := nodesOf(15)
	given := source(func(_ context.Context, out []int64) error {
		for i := range out {
			out[i] = int64(i % 12)
		}
		out[7] = scoring.Best
		return nil
	})
	for _, each := range []struct {
		name, args, bound string
		has, lacks        []string
	}{
		{"asked for", `{"policy": "best-fit", "logScores": true}`, "node-14", []string{
			`Pod scored`, `pod="default/pod"`, `nodes=15`, `wanted="node-7"`, `mode="native"`,
			`scores=[{"node":"node-7","score":100},{"node":"node-11","score":11},{"node":"node-10","score":10}`,
			`{"node":"node-3","score":3},{"node":"node-2","score":2}]`,
			`Pod bound`, `node="node-14" score=2 wanted="node-7"`,
		}, []string{`"node-1"`}},
		{"in shadow mode", `{"policy": "best-fit", "mode": "shadow", "logScores": true}`, "node-7", []string{
			`Pod scored`, `mode="shadow"`, `{"node":"node-7","score":100}`, `node="node-7" score=100 wanted="node-7"`,
		}, nil},
		{"elsewhere", `{"policy": "best-fit", "logScores": true}`, "node-99", []string{`Pod scored`}, []string{`Pod bound`}},
		{"not asked for", `{"policy": "best-fit"}`, "node-7", nil, []string{"Pod scored", "Pod bound"}},
	} {
		t.Run(each.name, func(t *testing.T) {
			plugin := plugged(t, each.args, nodes)
			plugin.source = given
			found := logged(t, plugin, nodes, each.bound)
			for _, text := range each.has {
				if !strings.Contains(found, text) {
					t.Errorf("%q is not in\n%s", text, found)
				}
			}
			for _, text := range each.lacks {
				if strings.Contains(found, text) {
					t.Errorf("%q is in\n%s", text, found)
				}
			}
		})
	}
}

func TestWhyThereAreNoScoresIsLogged(t *testing.T) {
	nodes := nodesOf(2)
	plugin := plugged(t, `{"policy": "best-fit", "logScores": true}`, nodes)
	plugin.source = source(func(context.Context, []int64) error { return errors.New("no") })
	found := logged(t, plugin, nodes, "node-0")
	if !strings.Contains(found, `Pod has no scores`) || !strings.Contains(found, `reason="failed"`) || strings.Contains(found, "Pod bound") {
		t.Error(found)
	}
}

func TestTheBestNodesAreInOrder(t *testing.T) {
	nodes := nodesOf(3)
	for _, each := range []struct {
		scores []int64
		want   []string
	}{
		{[]int64{5, 5, 5}, []string{"node-0", "node-1", "node-2"}},
		{[]int64{0, 100, 0}, []string{"node-1", "node-0", "node-2"}},
	} {
		for i, found := range bestScores(nodes, each.scores) {
			if found.Node != each.want[i] {
				t.Errorf("%v: %v", each.scores, found)
			}
		}
	}
	if found := bestScores(nil, nil); len(found) != 0 {
		t.Error(found)
	}
}
