package objectives

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
)

func testLogger(t testing.TB) klog.Logger {
	t.Helper()
	return ktesting.NewLogger(t, ktesting.NewConfig())
}

func annotated(annotations map[string]string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: annotations}}
}

func TestLimits(t *testing.T) {
	none := math.Inf(1)
	for _, test := range []struct {
		annotations map[string]string
		soft, hard  float64
		ignored     int
	}{
		{nil, none, none, 0},
		{map[string]string{"latencySoftConstraint": "35", "latencyHardConstraint": "100"}, 35, 100, 0},
		{map[string]string{"steersman.dev/latency-soft-constraint": "1.5"}, 1.5, none, 0},
		{map[string]string{"steersman.dev/latency-hard-constraint": "50", "latencyHardConstraint": "100"}, none, 50, 0},
		{map[string]string{"steersman.dev/latency-hard-constraint": "x", "latencyHardConstraint": "100"}, none, none, 1},
		{map[string]string{"latencyHardConstraint": " 1e2\n"}, none, 100, 0},
		{map[string]string{"latencyHardConstraint": "", "latencySoftConstraint": "0"}, none, none, 2},
		{map[string]string{"latencyHardConstraint": "-1", "latencySoftConstraint": "NaN"}, none, none, 2},
		{map[string]string{"latencyHardConstraint": "inf", "latencySoftConstraint": "1e999"}, none, none, 2},
		{map[string]string{"latencyHardConstraint": "0x1p3", "latencySoftConstraint": "1_0"}, none, none, 2},
		{map[string]string{"latencyHardConstraint": strings.Repeat("\n", 1000)}, none, none, 1},
	} {
		found := LimitsOf(annotated(test.annotations))
		if found.Soft != test.soft || found.Hard != test.hard || len(found.Ignored) != test.ignored {
			t.Errorf("%v: %+v", test.annotations, found)
		}
		if found.Limited() != (test.soft < none || test.hard < none) {
			t.Errorf("%v: limited %v", test.annotations, found.Limited())
		}
		for _, line := range found.Ignored {
			if strings.Contains(line, "\n") || len(line) > 300 {
				t.Errorf("%q is not one line", line)
			}
		}
	}
}

func FuzzLimits(f *testing.F) {
	f.Add("35", "100")
	f.Add("x", "1e400")
	f.Fuzz(func(t *testing.T, soft, hard string) {
		found := LimitsOf(annotated(map[string]string{"latencySoftConstraint": soft, "latencyHardConstraint": hard}))
		if !(found.Soft > 0 && found.Hard > 0) {
			t.Errorf("%q, %q: %+v", soft, hard, found)
		}
	})
}

func TestHistory(t *testing.T) {
	start := time.Now()
	at := func(second float64) time.Time { return start.Add(time.Duration(second * 1e9)) }
	var h history
	if !math.IsNaN(h.podsAt(start)) || !math.IsNaN(h.requestedUntil(start)) {
		t.Error("an empty history knows something")
	}
	h.note(at(0), 1000, 1)
	h.note(at(20), 3000, 3)
	for _, test := range []struct{ second, requested, pods float64 }{
		{-1, math.NaN(), math.NaN()},
		{0, 1000, 1},
		{10, 1000, 1},
		{20, 1000, 3},
		{27.5, 2000, 3}, // half of the 15 s before
		{35, 3000, 3},
		{100, 3000, 3},
	} {
		requested, pods := h.requestedUntil(at(test.second)), h.podsAt(at(test.second))
		if fmt.Sprint(requested, pods) != fmt.Sprint(test.requested, test.pods) {
			t.Errorf("at %v: %v, %v", test.second, requested, pods)
		}
	}
	for second := range 10_000 {
		h.note(at(float64(second)), 0, 0)
	}
	if len(h) > 605 {
		t.Errorf("%d changes are kept", len(h))
	}
}

func TestNodesComeAndGo(t *testing.T) {
	c := sharedCases(t)[0]
	for i := range 4 {
		c.Nodes = append(c.Nodes, c.Nodes[0])
		c.Nodes[len(c.Nodes)-1].Name = fmt.Sprintf("extra-%d", i)
	}
	made := c.stage()
	source, err := New("la", nil, made.list)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		infos, _ := made.list()
		return source.Scores(t.Context(), c.Pod.object("wanted"), infos, make([]int64, len(infos)))
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	stranger, kept := made.infos[0], source.sight.places[1].history[0]
	made.infos = made.infos[1:]
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	if len(source.sight.places) != len(c.Nodes)-1 || source.sight.places[0].history[0] != kept {
		t.Errorf("%d places, history %v", len(source.sight.places), source.sight.places[0].history)
	}
	err = source.Scores(t.Context(), c.Pod.object("wanted"), []fwk.NodeInfo{stranger}, make([]int64, 1))
	if !errors.Is(err, errSnapshot) {
		t.Errorf("a node that is not in the snapshot: %v", err)
	}
	source.snapshot = func() ([]fwk.NodeInfo, error) { return nil, errors.New("gone") }
	if err := ask(); !errors.Is(err, errSnapshot) {
		t.Errorf("no snapshot: %v", err)
	}
}

func TestNames(t *testing.T) {
	if !slices.Equal(Names(), []string{"la", "lc", "ma", "p0"}) {
		t.Errorf("%v", Names())
	}
	if _, err := New("most", nil, nil); err == nil || !strings.Contains(err.Error(), "la, lc, ma, p0 are right") {
		t.Errorf("%v", err)
	}
}

func BenchmarkScores(b *testing.B) {
	c := sharedCase{Measured: true, Pod: podCase{CPU: 250, Annotations: map[string]string{"latencyHardConstraint": "100"}}}
	c.Nodes = slices.Repeat(sharedCases(b)[0].Nodes[:1], 1000)
	for n := range c.Nodes {
		c.Nodes[n].Name = fmt.Sprintf("node-%d", n)
	}
	for _, each := range sharedCases(b)[0].Readings {
		for n := range c.Nodes {
			each.Node, each.Age = c.Nodes[n].Name, 1
			c.Readings = append(c.Readings, each)
		}
	}
	source, made := c.play(b, "p0")
	infos, _ := made.list()
	out, pod := make([]int64, len(infos)), c.Pod.object("wanted")
	for b.Loop() {
		if err := source.Scores(b.Context(), pod, infos, out); err != nil {
			b.Fatal(err)
		}
	}
}
