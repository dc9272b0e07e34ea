package native

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/scoring"
	"steersman.dev/plugin/pkg/core"
)

// TestWhatIsKeptIsWhatIsThere holds a source that has seen a cluster change to one that sees it for the first time.
func TestWhatIsKeptIsWhatIsThere(t *testing.T) {
	for _, name := range []string{"steersman-default", "cluster-mlp"} {
		t.Run(name, func(t *testing.T) {
			random, nodes := rand.New(rand.NewPCG(1, 2)), plainNodes(12, 2)
			source := sourceOf(t, name, "", &nodes)
			for step := range 300 {
				change(random, &nodes, step)
				pod := randomPod(random, fmt.Sprintf("asks-%d", step))
				candidates := slices.Clone(nodes[:1+random.IntN(len(nodes))])
				kept, fresh := make([]int64, len(candidates)), make([]int64, len(candidates))
				first := source.Scores(t.Context(), pod, candidates, kept)
				second := another(source, &nodes).Scores(t.Context(), pod, candidates, fresh)
				if !errors.Is(first, second) || first == nil && !slices.Equal(kept, fresh) {
					t.Fatalf("step %d: %v (%v), not %v (%v)", step, kept, first, fresh, second)
				}
			}
		})
	}
}

// TestChangedPolicyDecides holds a source whose policy changes to one that knows the new one alone.
func TestChangedPolicyDecides(t *testing.T) {
	random, nodes := rand.New(rand.NewPCG(3, 4)), plainNodes(12, 2)
	source := sourceOf(t, "steersman-default", "", &nodes)
	for step, name := range []string{"cluster-mlp", "steersman-default", "mlp", "cluster-mlp", "mlp"} {
		for range 20 {
			change(random, &nodes, 2)
		}
		fresh := sourceOf(t, name, "", &nodes)
		source.store.loaded.Store(&LoadedPolicy{fresh.store.LoadedPolicy().Policy, step + 2, time.Now()})
		instance := source.instance()
		for i := range 10 {
			pod := randomPod(random, fmt.Sprintf("asks-%d-%d", step, i))
			kept, other := make([]int64, len(nodes)), make([]int64, len(nodes))
			first, second := source.Scores(t.Context(), pod, nodes, kept), fresh.Scores(t.Context(), pod, nodes, other)
			if first != nil || second != nil || !slices.Equal(kept, other) {
				t.Fatalf("%s: %v (%v), not %v (%v)", name, kept, first, other, second)
			}
		}
		if instance != nil && instance != source.instance() {
			t.Errorf("%s: the core was begun anew", name)
		}
	}
}

// instance returns the core that a source asks, nil before its first question.
func (s *Source) instance() *core.Instance {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.instance
}

// another is another source by the same policy.
func another(other *Source, nodes *list) *Source {
	return New(other.store, func() (list, error) { return *nodes, nil })
}

// change puts a pod on a node, takes one away, or a node.
func change(random *rand.Rand, nodes *list, step int) {
	at := random.IntN(len(*nodes))
	info := (*nodes)[at].(*framework.NodeInfo)
	switch kind := random.IntN(20); {
	case kind == 0 && len(*nodes) > 4:
		*nodes = slices.Delete(slices.Clone(*nodes), at, at+1)
	case kind == 1:
		made := framework.NewNodeInfo()
		made.SetNode(plainNode(fmt.Sprintf("late-%d", step), random.IntN(3)))
		*nodes = append(slices.Clone(*nodes), made)
	case kind == 2 && len(info.GetPods()) > 0:
		_ = info.RemovePod(logger, info.GetPods()[0].GetPod())
	default:
		pod := randomPod(random, fmt.Sprintf("pod-%d", step))
		pod.Spec.NodeName = info.Node().Name
		generation := info.Generation
		info.AddPod(pod)
		if kind < 6 { // assumed in the snapshot alone, as the members of a pod group are
			info.Generation = generation
		}
	}
}

func TestWhyThereIsNoOpinion(t *testing.T) {
	nodes := plainNodes(3, 1)
	odd := plainPod("odd", 100, 100)
	odd.Annotations[gpu.MilliKey] = "many"
	stranger := plainNodes(4, 0)[3:]
	late, cancel := context.WithCancel(t.Context())
	cancel()
	many := plainNodes(200, 0)
	for _, each := range []struct {
		name   string
		source *Source
		ctx    context.Context
		pod    int64
		nodes  list
		reason string
	}{
		{"no policy", New(NewPolicyStore("", "/nowhere", func(*LoadedPolicy, error) {}), nil), t.Context(), 100, nodes, "no-policy"},
		{"no room", sourceOf(t, "linear", "", &nodes), t.Context(), 1_000_000, nodes, "no-room"},
		{"a node of another world", sourceOf(t, "linear", "", &nodes), t.Context(), 100, stranger, "snapshot"},
		{"no time", sourceOf(t, "linear", "", &many), late, 100, many, ""},
	} {
		t.Run(each.name, func(t *testing.T) {
			err := each.source.Scores(each.ctx, plainPod("pod", each.pod, 0), each.nodes, make([]int64, len(each.nodes)))
			var said *scoring.Error
			if each.reason == "" && !errors.Is(err, context.Canceled) ||
				each.reason != "" && (!errors.As(err, &said) || said.Reason != each.reason) {
				t.Errorf("%v, not %q", err, each.reason)
			}
		})
	}
	var said *scoring.Error
	err := sourceOf(t, "linear", "", &nodes).Scores(t.Context(), odd, nodes, make([]int64, 3))
	if !errors.As(err, &said) || said.Reason != "pod" || scoring.Failure(err) != nil {
		t.Errorf("%v", err)
	}
}

func TestOwners(t *testing.T) {
	nodes := plainNodes(3, 0)
	yes, counted := true, newOwners(3)
	mine := plainPod("mine", 100, 0)
	mine.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: &yes}}
	noted := plainPod("noted", 100, 0)
	noted.Annotations = map[string]string{"steersman.dev/owner": "ReplicaSet/web"}
	elsewhere := mine.DeepCopy()
	elsewhere.Namespace = "other"
	for n, pods := range [][]int{{0, 1}, {2}, {0}} {
		for _, which := range pods {
			nodes[n].(*framework.NodeInfo).AddPod([]*framework.PodInfo{{Pod: mine}, {Pod: noted}, {Pod: elsewhere}}[which].Pod)
		}
		counted.recount(n, nodes[n])
	}
	if nodes, counts := counted.of(mine); !slices.Equal(nodes, []int64{0, 2}) || !slices.Equal(counts, []int64{2, 1}) {
		t.Errorf("%v: %v", nodes, counts)
	}
	empty := plainNodes(1, 0)[0]
	counted.recount(0, empty)
	counted.recount(2, empty)
	if nodes, _ := counted.of(mine); len(nodes) != 0 || len(counted.nodes) != 1 {
		t.Errorf("%v of %v", nodes, counted.nodes)
	}
}

func TestTheFirstOfEqualsIsThatOfTheSnapshot(t *testing.T) {
	nodes := plainNodes(5, 0)
	source := sourceOf(t, "linear", "least-allocated", &nodes)
	out, candidates := make([]int64, 3), list{nodes[4], nodes[1], nodes[3]}
	if err := source.Scores(t.Context(), plainPod("pod", 100, 0), candidates, out); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(out, []int64{99, 100, 99}) {
		t.Errorf("%v", out)
	}
}

func TestACoreThatStoppedBeginsAnew(t *testing.T) {
	nodes := plainNodes(3, 1)
	source, out := sourceOf(t, "linear", "", &nodes), make([]int64, 3)
	for i, reason := range []string{"", "core", "", ""} {
		if reason != "" {
			source.cluster.instance.Close()
		}
		err := source.Scores(t.Context(), plainPod("pod", 100, 100), nodes, out)
		var said *scoring.Error
		if reason == "" && err != nil || reason != "" && (!errors.As(err, &said) || said.Reason != reason || scoring.Failure(err) == nil) {
			t.Errorf("%d: %v, not %q", i, err, reason)
		}
	}
}

// TestALateAnswer has the core work on a question for longer than a pod waits.
func TestALateAnswer(t *testing.T) {
	nodes := plainNodes(3, 1)
	source, out := sourceOf(t, "linear", "", &nodes), make([]int64, 3)
	pod := plainPod("pod", 100, 100)
	asks := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return source.Scores(ctx, pod, nodes, out)
	}
	for err := asks(); err != nil; err = asks() {
	}
	for _, late := range []bool{false, true} {
		finish := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := work(ctx, source, func(*cluster) (int, error) { <-finish; return 1, nil })
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := asks(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the core is asked while it works: %v", err)
		}
		first := source.cluster
		if late { // nobody waits any longer
			source.since = time.Now().Add(-2 * patience)
			_ = asks()
		} else {
			close(finish)
		}
		for err := asks(); err != nil; err = asks() {
		}
		if kept := source.cluster == first; kept == late {
			t.Errorf("what the core knows is kept: %v", kept)
		}
	}
}

func TestAPanicIsAnError(t *testing.T) {
	nodes := plainNodes(3, 1)
	source, out := sourceOf(t, "linear", "", &nodes), make([]int64, 3)
	if err := source.Scores(t.Context(), plainPod("pod", 100, 100), nodes, out); err != nil {
		t.Fatal(err)
	}
	if _, err := work(t.Context(), source, func(*cluster) (int, error) { panic("no") }); err == nil || err.Error() != "panic: no" {
		t.Error(err)
	}
	if err := source.Scores(t.Context(), plainPod("pod", 100, 100), nodes, out); err != nil {
		t.Error(err)
	}
}
