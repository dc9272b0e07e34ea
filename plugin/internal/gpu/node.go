package gpu

import (
	"math"
	"math/bits"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// Node is a node's GPUs as its pods leave them.
type Node struct {
	GPUs
	Sharing int   // pods whose devices annotations request
	Plugged int   // pods whose devices a device plugin or a DRA driver chose, and may have taken from those that pods share
	Err     error // what is wrong with the node's offer, which then counts as none
}

// NodeState counts a node's devices. It parses all pods of the node, so keep what it finds by the node's generation.
//
// The cache of the scheduler has a pod on its node, with another generation of it, before the pod's devices are
// reserved, but shows it only in the next pod's turn: a result that is kept by generation stays right.
func (l *Ledger) NodeState(info fwk.NodeInfo) Node { return l.NodeWithout(info, "") }

// NodeWithout returns NodeState as if one pod was not there.
//
// A pod counts on its devices even where that makes more than a whole one. Where nothing says which devices it holds,
// or the node does not have them, it counts on those that fit best, after all others, and on those with most left if
// too few fit: it runs there, whatever it says.
func (l *Ledger) NodeWithout(info fwk.NodeInfo, pod types.UID) Node {
	return l.nodeState(info, pod, false)
}

// NodeForReservation returns NodeWithout with the reservations of pods that the snapshot lacks: kube-scheduler reserves
// all members of a pod group by one snapshot, which has none of them.
func (l *Ledger) NodeForReservation(info fwk.NodeInfo, pod types.UID) Node {
	return l.nodeState(info, pod, true)
}

func (l *Ledger) nodeState(info fwk.NodeInfo, pod types.UID, reserving bool) Node {
	node := info.Node()
	if node == nil {
		return Node{}
	}
	gpus, err := CapacityOf(node)
	result := Node{GPUs: gpus, Err: err}
	var lost []Request
	for _, each := range info.GetPods() {
		if there := each.GetPod(); there.UID != pod {
			lost = result.add(l, there, lost)
		}
	}
	if reserving {
		result.addReserved(l.on(node.Name, func(held types.UID) bool { return held == pod || contains(info, held) }))
	}
	for _, request := range lost {
		if result.Offers(request.Resource) {
			result.take(result.devicesFor(request), request.Milli)
		}
	}
	return result
}

// add counts a pod; those whose devices are not known are appended to lost.
func (n *Node) add(ledger *Ledger, pod *v1.Pod, lost []Request) []Request {
	request, err := RequestOf(pod)
	if err != nil {
		request = partial(pod)
	}
	if request.Count == 0 && pod.Annotations[IndexKey] == "" {
		return lost
	}
	devices := ledger.devices(pod, pod.Spec.NodeName, request.Count)
	if request.Count == 0 {
		return lost
	}
	if counted := n.CountedAs(request.Resource); counted != nil {
		counted.Free -= request.Count
		return lost
	}
	n.count(request)
	if IsShared(request) {
		n.Sharing++
	} else {
		n.Plugged++
	}
	if devices == 0 || devices>>len(n.Free) != 0 {
		return append(lost, request)
	}
	n.take(devices, request.Milli)
	return lost
}

// CanAllocate reports whether the devices of a bit mask are as many as a pod requests, each with enough left.
func (n *Node) CanAllocate(devices uint64, request *Request) bool {
	if devices>>len(n.Free) != 0 || int64(bits.OnesCount64(devices)) != request.Count {
		return false
	}
	for d, left := range n.Free {
		if devices>>d&1 != 0 && left < request.Milli {
			return false
		}
	}
	return true
}

// addReserved counts what pods that the snapshot lacks will get.
func (n *Node) addReserved(reserved []holding) {
	for _, each := range reserved {
		n.Sharing++
		n.count(Request{Count: int64(bits.OnesCount64(each.devices)), Milli: each.milli})
		n.take(each.devices, each.milli)
	}
}

func contains(info fwk.NodeInfo, pod types.UID) bool {
	return slices.ContainsFunc(info.GetPods(), func(each fwk.PodInfo) bool { return each.GetPod().UID == pod })
}

// devicesFor returns those that fit best, and those with most left if fewer fit than are requested.
func (n *Node) devicesFor(request Request) uint64 {
	var chosen uint64
	for range min(request.Count, int64(len(n.Free))) {
		best := -1
		for d, left := range n.Free {
			if chosen>>d&1 == 0 && (best < 0 || better(left, n.Free[best], request.Milli)) {
				best = d
			}
		}
		chosen |= 1 << best
	}
	return chosen
}

// better reports whether a device with so much left suits a share better than another: the fullest that suffices, else
// that with most left.
func better(left, than, milli int64) bool {
	if left >= milli && than >= milli {
		return left < than
	}
	return left > than
}

// partial returns what a pod requests that requests GPUs in a way that is invalid: with as many devices as it says, and
// whole ones where their share is unclear.
func partial(pod *v1.Pod) Request {
	if count, name, err := pluginDevices(pod); err == nil && count > 0 {
		return Request{Count: count, Milli: Whole, Resource: name}
	}
	count, _ := rounded(pod.Annotations, CountKey)
	milli, sized := rounded(pod.Annotations, MilliKey)
	if count == 0 && milli == 0 {
		return Request{}
	}
	if !sized || milli < 1 || milli > Whole {
		milli = Whole
	}
	return Request{Count: min(max(count, 1), MaxCount), Milli: milli, Resource: CountKey}
}

// rounded returns the number in an annotation, rounded up; false if there is none.
func rounded(notes map[string]string, key string) (int64, bool) {
	value, ok := parseQuantity(notes[key])
	if !ok || value.Sign() < 0 || value.CmpInt64(math.MaxInt64) > 0 {
		return 0, false
	}
	return value.Value(), true
}

func (n *Node) take(devices uint64, milli int64) {
	for d := range n.Free {
		if devices>>d&1 != 0 {
			n.Free[d] -= milli
		}
	}
}

func (n *Node) count(request Request) {
	kind := 0
	if request.Milli == Whole {
		kind = int(request.Count)
	}
	for len(n.Pods) <= kind {
		n.Pods = append(n.Pods, 0)
	}
	n.Pods[kind]++
}

func roundedDown(quantity resource.Quantity) int64 {
	amount := quantity.Value()
	if quantity.CmpInt64(amount) < 0 {
		amount--
	}
	return amount
}
