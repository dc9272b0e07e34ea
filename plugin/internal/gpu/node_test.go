package gpu

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func offering(resources ...string) *v1.Node {
	amounts := v1.ResourceList{}
	for i := 0; i < len(resources); i += 2 {
		amounts[v1.ResourceName(resources[i])] = resource.MustParse(resources[i+1])
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{ModelKey: "V100"}},
		Status:     v1.NodeStatus{Allocatable: amounts},
	}
}

func TestOfferOf(t *testing.T) {
	inCapacity := offering("cpu", "1")
	inCapacity.Status.Capacity = v1.ResourceList{CountKey: resource.MustParse("2")}
	labelled := offering("nvidia.com/gpu", "1")
	labelled.Labels = map[string]string{"nvidia.com/gpu.product": "A100"}
	twoVendors := offering("nvidia.com/gpu", "2", "amd.com/gpu", "3")
	twoVendors.Labels = map[string]string{"nvidia.com/gpu.product": "A100", "amd.com/gpu.product-name": "MI300X"}
	capacity := func(count int, model string, resources ...string) GPUs {
		return GPUs{Model: model, Resources: resources, Free: slices.Repeat([]int64{1000}, count)}
	}
	withCounted := func(gpus GPUs, counted ...Counted) GPUs {
		gpus.Counted = counted
		return gpus
	}
	shared := func(count int, model string) GPUs { return capacity(count, model, CountKey) }
	for name, test := range map[string]struct {
		node *v1.Node
		want GPUs
		err  string
	}{
		"nothing":            {offering("cpu", "1"), GPUs{}, ""},
		"count and milli":    {offering(CountKey, "8", MilliKey, "8000"), shared(8, "V100"), ""},
		"milli of one":       {offering(CountKey, "8", MilliKey, "1k"), shared(8, "V100"), ""},
		"count alone":        {offering(CountKey, "8"), shared(8, "V100"), ""},
		"milli alone":        {offering(MilliKey, "3000"), shared(3, "V100"), ""},
		"none":               {offering(CountKey, "0", MilliKey, "0"), GPUs{}, ""},
		"in capacity":        {inCapacity, shared(2, "V100"), ""},
		"a device plugin":    {labelled, capacity(1, "A100", "nvidia.com/gpu"), ""},
		"both":               {offering(CountKey, "2", "amd.com/gpu", "2"), capacity(2, "V100", CountKey, "amd.com/gpu"), ""},
		"no count that fits": {offering(CountKey, "2", MilliKey, "3000"), GPUs{}, "3000 does not go with 2 devices"},
		"parts":              {offering(MilliKey, "2500"), GPUs{}, "2500 does not go with 2 devices"},
		"contradiction":      {offering(CountKey, "2", "amd.com/gpu", "3"), GPUs{}, "2 contradicts the 3 devices"},
		"nothing and a plugin": {
			offering(CountKey, "2", "amd.com/gpu", "0"), GPUs{}, "2 contradicts the 0 devices",
		},
		"two plugins": {
			twoVendors, withCounted(capacity(3, "MI300X", "amd.com/gpu"), Counted{Resource: "nvidia.com/gpu", Model: "A100", Free: 2}), "",
		},
		"one of two is shared": {
			offering(CountKey, "2", "nvidia.com/gpu", "2", "amd.com/gpu", "8"),
			withCounted(capacity(2, "V100", CountKey, "nvidia.com/gpu"), Counted{Resource: "amd.com/gpu", Model: "V100", Free: 8}), "",
		},
		"none of two is shared": {
			offering(CountKey, "2", "nvidia.com/gpu", "3", "amd.com/gpu", "8"), GPUs{}, "2 contradicts the 3 and 8 devices",
		},
		"many":        {offering(CountKey, "63"), GPUs{Counted: []Counted{{Resource: CountKey, Model: "V100", Free: 63}}}, ""},
		"many slices": {offering("nvidia.com/gpu", "80"), GPUs{Counted: []Counted{{Resource: "nvidia.com/gpu", Model: "V100", Free: 80}}}, ""},
		"many of both": {
			offering(CountKey, "80", "nvidia.com/gpu", "80"),
			GPUs{Counted: []Counted{{Resource: "nvidia.com/gpu", Model: "V100", Free: 80}}}, "",
		},
		"far too many": {
			offering(CountKey, "9223372036854775807", MilliKey, "9223372036854775806"), GPUs{}, "does not go with",
		},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := CapacityOf(test.node)
			if err != nil && (test.err == "" || !strings.Contains(err.Error(), test.err)) || err == nil && test.err != "" {
				t.Fatalf("error %v; want one with %q", err, test.err)
			}
			if !reflect.DeepEqual(result, test.want) {
				t.Errorf("%+v; want %+v", result, test.want)
			}
		})
	}
}

var gpuNode = offering(CountKey, "4", MilliKey, "4000", "nvidia.com/gpu", "4")

func bound(uid string, notes map[string]string, resources ...string) *v1.Pod {
	pod := asking(notes, resources...)
	pod.Name, pod.UID, pod.Spec.NodeName = uid, types.UID(uid), "node"
	return pod
}

func nodeState(ledger *Ledger, pods ...*v1.Pod) Node {
	info := framework.NewNodeInfo(pods...)
	info.SetNode(gpuNode)
	return ledger.NodeState(info)
}

func TestLookCountsPodsWhereTheyAre(t *testing.T) {
	for name, test := range map[string]struct {
		pods       []*v1.Pod
		free, kind []int64
	}{
		"nobody": {nil, []int64{1000, 1000, 1000, 1000}, nil},
		"shares and whole ones": {
			[]*v1.Pod{bound("a", notes("1", "300", "-", "2")), bound("b", notes("2", "1000", "-", "0-3"))},
			[]int64{0, 1000, 700, 0}, []int64{1, 0, 1},
		},
		"a pod that nobody gave devices goes last": {
			[]*v1.Pod{bound("a", notes("1", "300")), bound("b", notes("1", "700", "-", "3"))},
			[]int64{1000, 1000, 1000, 0}, []int64{2},
		},
		"devices that are not there": {
			[]*v1.Pod{bound("a", notes("1", "300", "-", "4"))}, []int64{700, 1000, 1000, 1000}, []int64{1},
		},
		"no room for what nobody gave devices": {
			[]*v1.Pod{bound("a", notes("5", "300"))}, []int64{700, 700, 700, 700}, []int64{1},
		},
		"more than there is": {
			[]*v1.Pod{bound("a", notes("1", "700", "-", "0")), bound("b", notes("1", "700", "-", "0"))},
			[]int64{-400, 1000, 1000, 1000}, []int64{2},
		},
		"annotations that make no sense": {
			[]*v1.Pod{
				bound("a", notes("1", "5000", "-", "0")), bound("b", notes("1", "300", "-", "x")),
				bound("c", notes("-", "-", "-", "1")), bound("d", notes("1", "300", "A||B", "1")),
			},
			[]int64{0, 400, 1000, 1000}, []int64{2, 1},
		},
		"containers count whatever annotations say": {
			[]*v1.Pod{bound("a", notes("-", "-", "-", "x"), "nvidia.com/gpu", "2")},
			[]int64{0, 0, 1000, 1000}, []int64{0, 0, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			result := nodeState(&Ledger{}, test.pods...)
			if !reflect.DeepEqual(result.Free, test.free) || !reflect.DeepEqual(result.Pods, test.kind) {
				t.Errorf("%v, %v; want %v, %v", result.Free, result.Pods, test.free, test.kind)
			}
			if result.Model != "V100" || result.Err != nil {
				t.Errorf("%+v", result)
			}
		})
	}
}

func TestTheLedgerIsRightUntilTheAnnotationSaysTheSame(t *testing.T) {
	ledger := &Ledger{}
	// The pod came with the devices of another life.
	pod := bound("a", notes("1", "300", "-", "0"))
	ledger.Reserve(pod.UID, "node", 0b1000, 300)
	if free := nodeState(ledger, pod).Free; !reflect.DeepEqual(free, []int64{1000, 1000, 1000, 700}) || ledger.Len() != 1 {
		t.Errorf("%v, %d entries", free, ledger.Len())
	}
	pod = bound("a", notes("1", "300", "-", "3"))
	for range 2 {
		if free := nodeState(ledger, pod).Free; !reflect.DeepEqual(free, []int64{1000, 1000, 1000, 700}) || ledger.Len() != 0 {
			t.Errorf("%v, %d entries", free, ledger.Len())
		}
	}
	ledger.Reserve(pod.UID, "another", 1, 300)
	if free := nodeState(ledger, pod).Free; free[3] != 700 {
		t.Errorf("a reservation elsewhere counts here: %v", free)
	}
	info := framework.NewNodeInfo(pod)
	info.SetNode(gpuNode)
	if free := ledger.NodeWithout(info, pod.UID).Free; free[3] != 1000 {
		t.Errorf("the pod itself counts: %v", free)
	}
}

func TestANodeWithoutAnObjectHasNothing(t *testing.T) {
	if result := (&Ledger{}).NodeState(framework.NewNodeInfo()); result.Free != nil {
		t.Errorf("%+v", result)
	}
}

// lives is a scheduler's cache and ledger, and beside them what each pod holds, told plainly.
type lives struct {
	ledger *Ledger
	cached map[types.UID]*v1.Pod
	held   map[types.UID]uint64
	milli  map[types.UID]int64
	made   int
}

func (l *lives) nodeState() Node {
	pods := make([]*v1.Pod, 0, len(l.cached))
	for _, pod := range l.cached {
		pods = append(pods, pod)
	}
	return nodeState(l.ledger, pods...)
}

func (l *lives) any(rng *rand.Rand) types.UID {
	for i := range l.made {
		if uid := types.UID(fmt.Sprint((i + rng.IntN(l.made)) % l.made)); l.held[uid] != 0 {
			return uid
		}
	}
	return ""
}

// reserve is a pod's turn: it is assumed, then its devices are reserved.
func (l *lives) reserve(rng *rand.Rand) {
	milli := []int64{1, 300, 500, 700, 1000}[rng.IntN(5)]
	request := Request{Count: 1 + rng.Int64N(2), Milli: milli}
	node := l.nodeState()
	if !node.Fits(&request) {
		return
	}
	uid := types.UID(fmt.Sprint(l.made))
	l.made++
	l.held[uid], l.milli[uid] = node.BestFit(&request), milli
	l.cached[uid] = bound(string(uid), notes(fmt.Sprint(request.Count), fmt.Sprint(milli)))
	l.ledger.Reserve(uid, "node", l.held[uid], milli)
}

// confirm is the API server's word of a binding.
func (l *lives) confirm(uid types.UID) {
	pod := l.cached[uid].DeepCopy()
	pod.Annotations[IndexKey] = Index(l.held[uid])
	l.cached[uid] = pod
}

// leave is the end of a pod, or of its reservation.
func (l *lives) leave(uid types.UID, ledgerFirst bool) {
	delete(l.held, uid)
	if ledgerFirst {
		l.ledger.Release(uid)
		l.nodeState()
	}
	delete(l.cached, uid)
	l.ledger.Release(uid)
}

func TestAnyHistoryCountsAsItsEnd(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 0))
		all := &lives{&Ledger{}, map[types.UID]*v1.Pod{}, map[types.UID]uint64{}, map[types.UID]int64{}, 0}
		for step := range 80 {
			switch uid := all.any(rng); {
			case rng.IntN(2) == 0 || uid == "":
				all.reserve(rng)
			case rng.IntN(3) > 0:
				all.confirm(uid)
			default:
				all.leave(uid, rng.IntN(2) == 0)
			}
			want := []int64{1000, 1000, 1000, 1000}
			for uid, devices := range all.held {
				for d := range want {
					want[d] -= int64(devices>>d&1) * all.milli[uid]
				}
			}
			free := all.nodeState().Free
			if !reflect.DeepEqual(free, want) {
				t.Fatalf("seed %d, step %d: %v; want %v", seed, step, free, want)
			}
			for _, left := range free {
				if left < 0 {
					t.Fatalf("seed %d, step %d: a device has more than a whole one: %v", seed, step, free)
				}
			}
		}
		for uid := range all.held {
			all.confirm(uid)
		}
		if all.nodeState(); all.ledger.Len() != 0 {
			t.Fatalf("seed %d: %d entries are left over", seed, all.ledger.Len())
		}
	}
}

// TestReservationsCountWhateverTheSnapshotLacks reserves pods by snapshots that have any of the earlier ones.
func TestReservationsCountWhateverTheSnapshotLacks(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		ledger, reserved := &Ledger{}, []*v1.Pod{}
		want := []int64{1000, 1000, 1000, 1000}
		for i := range 30 {
			var seen []*v1.Pod
			for _, pod := range reserved {
				if rng.IntN(2) == 0 {
					seen = append(seen, pod)
				}
			}
			info := framework.NewNodeInfo(seen...)
			info.SetNode(gpuNode)
			pod := bound(fmt.Sprint(i), notes("1", fmt.Sprint([]int{100, 300, 700, 1000}[rng.IntN(4)])))
			request, err := RequestOf(pod)
			if err != nil {
				t.Fatal(err)
			}
			nodeForReservation := ledger.NodeForReservation(info, pod.UID)
			if !reflect.DeepEqual(nodeForReservation.Free, want) || nodeForReservation.Sharing != len(reserved) {
				t.Fatalf("seed %d, pod %d: %v of %d pods; want %v of %d", seed, i, nodeForReservation.Free, nodeForReservation.Sharing, want, len(reserved))
			}
			if !nodeForReservation.Fits(&request) {
				continue
			}
			devices := nodeForReservation.BestFit(&request)
			ledger.Reserve(pod.UID, "node", devices, request.Milli)
			if rng.IntN(4) == 0 {
				ledger.Release(pod.UID)
				continue
			}
			reserved = append(reserved, pod)
			for d := range want {
				want[d] -= int64(devices>>d&1) * request.Milli
			}
		}
		for _, pod := range reserved {
			ledger.Release(pod.UID)
		}
		if ledger.Len() != 0 {
			t.Fatalf("seed %d: %d entries are left over", seed, ledger.Len())
		}
	}
}

func BenchmarkLook(b *testing.B) {
	pods := make([]*v1.Pod, 9)
	for i := range pods {
		pods[i] = bound(fmt.Sprint(i), notes("1", "300", "V100|P100", fmt.Sprint(i%4)))
	}
	info := framework.NewNodeInfo(pods...)
	info.SetNode(gpuNode)
	b.ReportAllocs()
	for b.Loop() {
		Assumed.NodeState(info)
	}
}
