package policy

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
)

// everyPolicy opens all policies of the vectors.
func everyPolicy(t testing.TB) map[string]*Policy {
	t.Helper()
	result := map[string]*Policy{}
	for _, each := range readVectors(t).Policies {
		result[each.Name] = each.open(t)
	}
	return result
}

func all(state *State) []int {
	candidates := make([]int, len(state.Nodes))
	for n := range candidates {
		candidates[n] = n
	}
	return candidates
}

func TestManyGoroutinesGetTheSameScores(t *testing.T) {
	state := busyCluster(40)
	pod := &Pod{CPU: 1000, Memory: 1 << 30, GPU: GPURequest{Count: 1, Milli: 190}}
	for name, policy := range everyPolicy(t) {
		t.Run(name, func(t *testing.T) {
			wanted := make([]float64, len(state.Nodes))
			if err := policy.Scores(t.Context(), state, pod, all(state), wanted); err != nil {
				t.Fatal(err)
			}
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					result := make([]float64, len(state.Nodes))
					for range 5 {
						if err := policy.Scores(t.Context(), state, pod, all(state), result); err != nil || !slices.Equal(result, wanted) {
							t.Errorf("%v (%v), not %v", result, err, wanted)
						}
					}
				})
			}
			group.Wait()
		})
	}
}

func TestNothingIsAllocatedForANode(t *testing.T) {
	state := busyCluster(50)
	pod, out, candidates := &Pod{CPU: 1000, GPU: GPURequest{Count: 1, Milli: 250}}, make([]float64, 50), all(state)
	for name, policy := range everyPolicy(t) {
		allocations := testing.AllocsPerRun(20, func() {
			if err := policy.Scores(t.Context(), state, pod, candidates, out); err != nil {
				t.Fatal(err)
			}
		})
		if allocations > 4 {
			t.Errorf("%s allocates %v times for %d nodes", name, allocations, len(state.Nodes))
		}
	}
}

// TestWhatIsKeptOfStatesChangesNothing compares with policies that have seen nothing yet.
func TestWhatIsKeptOfStatesChangesNothing(t *testing.T) {
	clusters := readVectors(t).Clusters
	for _, name := range []string{"steersman-default", "mlp", "gpu-mlp"} {
		used := packedPolicy(t, name)
		for i := range clusters[:12] {
			state, pod := clusters[i].state(), clusters[i].Pods[0].pod()
			result, wanted := make([]float64, len(state.Nodes)), make([]float64, len(state.Nodes))
			if err := used.Scores(t.Context(), state, pod, all(state), result); err != nil {
				t.Fatal(err)
			}
			if err := packedPolicy(t, name).Scores(t.Context(), state, pod, all(state), wanted); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(result, wanted) {
				t.Errorf("%s: %v, not %v", name, result, wanted)
			}
		}
	}
}

// TestStatesAreToldApart scores nodes that differ in one thing, one after the other and each by a policy that is new.
func TestStatesAreToldApart(t *testing.T) {
	node := Node{CPU: Amount{16000, 8000}, Pods: Amount{9, 9}, GPU: GPUs{Model: "P100", Free: []int64{Whole, 250}}}
	state := &State{Nodes: []Node{node, node, node, node, node, node}}
	state.Nodes[1].CPU.Allocatable = 8000
	state.Nodes[2].CPU.Free = 8001
	state.Nodes[3].GPU.Model = "T4"
	state.Nodes[4].GPU.Free = []int64{Whole, 250, 0}
	state.Nodes[5].GPU.Free = []int64{Whole, 251}
	for i := range state.Nodes[:2] { // untouched or not
		state.Nodes[i].GPU.Free = []int64{Whole, Whole}
	}
	used, pod := packedPolicy(t, "linear"), &Pod{CPU: 500}
	result, alone := make([]float64, len(state.Nodes)), []float64{0}
	if err := used.Scores(t.Context(), state, pod, all(state), result); err != nil {
		t.Fatal(err)
	}
	for n := range state.Nodes {
		if err := packedPolicy(t, "linear").Scores(t.Context(), state, pod, []int{n}, alone); err != nil {
			t.Fatal(err)
		}
		if result[n] != alone[0] {
			t.Errorf("node %d scores %v, and %v alone", n, result[n], alone[0])
		}
	}
}

func TestOfEqualDevicesTheFullestIsTaken(t *testing.T) {
	policy, err := Parse("tiny", tiny().file(t))
	if err != nil {
		t.Fatal(err)
	}
	state := &State{Nodes: []Node{{CPU: Amount{8, 8}, Pods: Amount{9, 9}, GPU: GPUs{Free: []int64{0, Whole, 250}}}}}
	devices, err := policy.Devices(&state.Nodes[0], &Pod{GPU: GPURequest{Count: 1, Milli: 250}})
	if err != nil || devices != 0b100 {
		t.Errorf("weights of zero choose the devices %b (%v)", devices, err)
	}
}

func TestCandidatesMayComeInAnyOrder(t *testing.T) {
	state := busyCluster(20)
	pod := &Pod{CPU: 1000, GPU: GPURequest{Count: 1, Milli: 250}}
	for name, policy := range everyPolicy(t) {
		candidates, some := all(state), []int{7, 3, 19}
		result, few := make([]float64, 20), make([]float64, 3)
		slices.Reverse(candidates)
		if err := policy.Scores(t.Context(), state, pod, candidates, result); err != nil {
			t.Fatal(err)
		}
		if seesCluster(policy) {
			continue // and how many candidates there are
		}
		if err := policy.Scores(t.Context(), state, pod, some, few); err != nil {
			t.Fatal(err)
		}
		for i, n := range some {
			if few[i] != result[len(result)-1-n] {
				t.Errorf("%s: node %d scores %v, and %v among all", name, n, few[i], result[len(result)-1-n])
			}
		}
	}
}

func TestWhatCannotBeScoredIsAnError(t *testing.T) {
	policy, out := packedPolicy(t, "steersman-default"), make([]float64, 1)
	node := Node{Name: "n", CPU: Amount{8000, 8000}, Pods: Amount{10, 10}, GPU: GPUs{Free: []int64{Whole, 300}}}
	changed := func(change func(*Node)) *State {
		other := node
		change(&other)
		return &State{Nodes: []Node{other}}
	}
	share := &Pod{CPU: 100, GPU: GPURequest{Count: 1, Milli: 250}}
	same := changed(func(*Node) {})
	for _, each := range []struct {
		state      *State
		pod        *Pod
		candidates []int
		message    string
	}{
		{same, share, []int{1}, "there is no node 1 among 1"},
		{same, share, []int{-1}, "there is no node -1 among 1"},
		{same, share, []int{0, 0}, "there is room for 1 scores of 2 nodes"},
		{same, &Pod{GPU: GPURequest{Count: 1}}, []int{0}, "expected 1 to 1000 milli"},
		{same, &Pod{GPU: GPURequest{Count: -1}}, []int{0}, "asks for -1 GPUs"},
		{same, &Pod{GPU: GPURequest{Count: 1, Milli: 1001}}, []int{0}, "expected 1 to 1000 milli"},
		{changed(func(n *Node) { n.GPU.Free = []int64{1001} }), share, []int{0}, "a GPU with 1001 milli left"},
		{changed(func(n *Node) { n.GPU.Free = make([]int64, 63) }), share, []int{0}, "has 63 GPUs; at most 62"},
	} {
		err := policy.Scores(t.Context(), each.state, each.pod, each.candidates, out)
		if err == nil || !strings.Contains(err.Error(), each.message) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v says not %q", err, each.message)
		}
	}
	if _, err := policy.Devices(&same.Nodes[0], &Pod{CPU: 9000}); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("%v", err)
	}
	same.Peers = map[int]int{4: 1}
	if err := packedPolicy(t, "cluster-mlp").Scores(t.Context(), same, &Pod{CPU: 100}, []int{0}, out); err == nil {
		t.Error("a pod has peers on a node that is not there")
	}
}

func TestAModelThatThePolicyWasNotPreparedForIsAsNone(t *testing.T) {
	node := Node{Name: "n", CPU: Amount{8000, 8000}, Pods: Amount{10, 10}, GPU: GPUs{Free: []int64{Whole, 300}}}
	strange := node
	strange.GPU.Model = "ZX80"
	policy, out := packedPolicy(t, "steersman-default"), make([]float64, 2)
	state, share := &State{Nodes: []Node{node, strange}}, &Pod{CPU: 100, GPU: GPURequest{Count: 1, Milli: 250}}
	if err := policy.Scores(t.Context(), state, share, []int{0, 1}, out); err != nil || out[0] != out[1] {
		t.Errorf("%v, %v", out, err)
	}
}

func TestLocalPoliciesAreKnownByName(t *testing.T) {
	if _, err := Builtin("best", nil); err == nil || !strings.Contains(err.Error(), "known are balanced-allocation, best-fit,") {
		t.Errorf("%v", err)
	}
	if _, err := Builtin(FGD, nil); err == nil || !strings.Contains(err.Error(), "steersman fit policy") {
		t.Errorf("%v", err)
	}
	policy, err := Builtin("least-allocated", nil)
	if err != nil || policy.Name != "least-allocated" || policy.Profile != nil || policy.Card != nil {
		t.Errorf("%+v, %v", policy, err)
	}
}

func TestFits(t *testing.T) {
	node := Node{
		CPU: Amount{8000, 1000}, Memory: Amount{1 << 30, 1 << 20}, Pods: Amount{10, 1},
		GPU: GPUs{Model: "A100", Free: []int64{300, Whole, 0}},
	}
	checkDeadline := node
	checkDeadline.CPU.Free, checkDeadline.Memory.Free = -1, -1
	full := node
	full.Pods.Free = 0
	nameless := node
	nameless.GPU.Model = ""
	for _, each := range []struct {
		node *Node
		pod  Pod
		fits bool
	}{
		{&node, Pod{CPU: 1000, Memory: 1 << 20}, true},
		{&node, Pod{CPU: 1001}, false},
		{&node, Pod{Memory: 1<<20 + 1}, false},
		{&checkDeadline, Pod{}, true}, // what is not requested is not checked
		{&checkDeadline, Pod{CPU: 1}, false},
		{&full, Pod{}, false},
		{&node, Pod{GPU: GPURequest{Count: 1, Milli: 300}}, true},
		{&node, Pod{GPU: GPURequest{Count: 2, Milli: 300}}, true},
		{&node, Pod{GPU: GPURequest{Count: 2, Milli: 301}}, false},
		{&node, Pod{GPU: GPURequest{Count: 1, Milli: 300, Models: "V100|A100"}}, true},
		{&node, Pod{GPU: GPURequest{Models: "V100"}}, false},
		{&nameless, Pod{GPU: GPURequest{Models: "A100"}}, false},
	} {
		if result := each.node.Fits(&each.pod); result != each.fits {
			t.Errorf("%+v on %+v: %v", each.pod, *each.node, result)
		}
	}
}

func TestDefaultDevicesAreTheFullestThatSuffice(t *testing.T) {
	node := &Node{GPU: GPUs{Free: []int64{Whole, 300, 250, Whole, 250}}}
	for _, each := range []struct {
		count, milli int64
		devices      uint64
	}{{0, 0, 0}, {1, 250, 0b100}, {1, 260, 0b10}, {1, Whole, 0b1}, {2, Whole, 0b1001}, {3, 250, 0b10110}} {
		if result := node.GPU.BestFit(&GPURequest{Count: each.count, Milli: each.milli}); result != each.devices {
			t.Errorf("%d of %d: %b, not %b", each.count, each.milli, result, each.devices)
		}
	}
}

// TestFGDByHand computes the fragmentation of a node by the formula, for a profile of two kinds of pods.
func TestFGDByHand(t *testing.T) {
	profile := &Profile{
		pods:    []typicalPod{{cpu: 1000, count: 1, value: 1, share: 0.75}, {cpu: 1000, share: 0.25}},
		milli:   []int64{200, 500},
		accepts: [][]bool{{true, true}},
	}
	policy, err := Builtin(FGD, profile)
	if err != nil {
		t.Fatal(err)
	}
	state := &State{Nodes: []Node{{CPU: Amount{8000, 8000}, Pods: Amount{9, 9}, GPU: GPUs{Free: []int64{700, Whole}}}}}
	out := []float64{0}
	if err := policy.Scores(t.Context(), state, &Pod{GPU: GPURequest{Count: 1, Milli: 300}}, []int{0}, out); err != nil {
		t.Fatal(err)
	}
	// Before, only the pod without GPU cannot use the 1,700 milli. With the pod on the first device, 400 are left there,
	// of no use to those that want 500; on the second, 700 are left, and both devices can be used.
	before, first, second := 0.25*1700, 0.75*400+0.25*1400, 0.25*1400
	sigmoid := func(after float64) float64 { return math.Trunc(100 / (1 + math.Exp((after-before)/1000))) }
	if out[0] != sigmoid(second) || sigmoid(second) <= sigmoid(first) {
		t.Errorf("%v, not %v (or %v)", out[0], sigmoid(second), sigmoid(first))
	}
	if devices, err := policy.Devices(&state.Nodes[0], &Pod{GPU: GPURequest{Count: 1, Milli: 300}}); err != nil || devices != 0b10 {
		t.Errorf("devices %b, %v", devices, err)
	}
}
