package gpu

import (
	"math"
	"math/bits"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	fwk "steersman.dev/plugin/internal/framework"
	"steersman.dev/plugin/internal/policy"
)

// Node is a node's GPUs as its pods leave them.
type Node struct {
	Model     string           // "" if none is known
	Resources []string         // the names under which the devices are offered
	Free      []int64          // milli left of each device; below 0 where pods were bound to more than there is
	Counted   []policy.Counted // GPUs that are not looked at one by one, as pods leave them
	Pods      []int64          // pods with devices: first those with parts, then those with one whole device, two, ...
	Sharing   int              // pods whose devices annotations request
	Plugged   int              // pods whose devices a device plugin or a DRA driver chose, and may have taken from those that pods share
	Err       error            // what is wrong with the node's offer, which then counts as none
}

// Accepts reports whether the GPUs that the node has for a pod are of a model that it accepts.
func (n *Node) Accepts(request Request) bool {
	if counted := n.counted(request.Resource); counted != nil {
		return request.Accepts(counted.Model)
	}
	return request.Accepts(n.Model)
}

// Fits reports whether enough GPUs of the name that is requested are left.
func (n *Node) Fits(request Request) bool {
	if counted := n.counted(request.Resource); counted != nil {
		return request.Milli == whole && request.Count <= counted.Free
	}
	return n.offers(request.Resource) && request.Fits(n.Free)
}

// Counts reports whether the node counts GPUs of this name, so that a pod has none of its devices.
func (n *Node) Counts(resource string) bool { return n.counted(resource) != nil }

func (n *Node) counted(resource string) *policy.Counted {
	for i := range n.Counted {
		if n.Counted[i].Resource == resource {
			return &n.Counted[i]
		}
	}
	return nil
}

// offers reports whether the devices are offered under a name.
func (n *Node) offers(resource string) bool { return slices.Contains(n.Resources, resource) }

// NodeState counts a node's devices. It parses all pods of the node, so keep what it finds by the node's generation.
//
// The cache of the scheduler has a pod on its node, with another generation of it, before the pod's devices are reserved,
// but shows it to nobody before the next pod's turn: what is kept by generation is right.
func NodeState(info fwk.NodeInfo) Node { return Assumed.NodeState(info) }

// NodeState returns the same with the pods of this ledger.
func (l *Ledger) NodeState(info fwk.NodeInfo) Node { return l.NodeWithout(info, "") }

// NodeWithout returns NodeState as if one pod was not there.
//
// A pod counts on its devices even where that makes more than a whole one. Where nothing says which devices it holds, or
// the node does not have them, it counts on those that fit best, after all others, and on those with most left if too few
// fit: it runs there, whatever it says.
func (l *Ledger) NodeWithout(info fwk.NodeInfo, pod types.UID) Node {
	return l.nodeState(info, pod, false)
}

// NodeForReservation returns NodeWithout with the reservations of pods that the snapshot lacks: kube-scheduler reserves
// all members of a pod group by one snapshot, which has none of them.
func NodeForReservation(info fwk.NodeInfo, pod types.UID) Node {
	return Assumed.NodeForReservation(info, pod)
}

// NodeForReservation returns the same with the reservations of this ledger.
func (l *Ledger) NodeForReservation(info fwk.NodeInfo, pod types.UID) Node {
	return l.nodeState(info, pod, true)
}

func (l *Ledger) nodeState(info fwk.NodeInfo, pod types.UID, reserving bool) Node {
	node := info.Node()
	if node == nil {
		return Node{}
	}
	offer, err := CapacityOf(node)
	result := Node{Model: offer.Model, Resources: offer.Resources, Counted: offer.Counted, Err: err}
	if offer.Count > 0 {
		result.Free = make([]int64, offer.Count)
	}
	for d := range result.Free {
		result.Free[d] = whole
	}
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
		if result.offers(request.Resource) {
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
	devices, known := ledger.devices(pod, pod.Spec.NodeName, request.Count)
	if !known {
		devices = 0
	}
	if request.Count == 0 {
		return lost
	}
	if counted := n.counted(request.Resource); counted != nil {
		counted.Free -= request.Count
		return lost
	}
	n.count(request)
	if request.IsShared() {
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

// addReserved counts what pods that the snapshot lacks will get.
func (n *Node) addReserved(reserved []holding) {
	for _, each := range reserved {
		n.Sharing++
		n.count(Request{Count: int64(bits.OnesCount64(each.devices)), Milli: each.milli})
		n.take(each.devices, each.milli)
	}
}

// contains reports whether a pod is on a node of the snapshot.
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
		return Request{Count: count, Milli: whole, Resource: name}
	}
	count, _ := rounded(pod.Annotations, CountKey)
	milli, sized := rounded(pod.Annotations, MilliKey)
	if count == 0 && milli == 0 {
		return Request{}
	}
	if !sized || milli < 1 || milli > whole {
		milli = whole
	}
	return Request{Count: min(max(count, 1), MaxCount), Milli: milli, Resource: CountKey}
}

// rounded returns the number in an annotation, rounded up; false if there is none.
func rounded(notes map[string]string, key string) (int64, bool) {
	text, ok := notes[key]
	if !ok || !quantity.MatchString(text) {
		return 0, false
	}
	value, err := resource.ParseQuantity(text)
	if err != nil || value.Sign() < 0 || value.CmpInt64(math.MaxInt64) > 0 {
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
	if request.Milli == whole {
		kind = int(request.Count)
	}
	for len(n.Pods) <= kind {
		n.Pods = append(n.Pods, 0)
	}
	n.Pods[kind]++
}

// roundedDown returns a quantity as an integer.
func roundedDown(quantity resource.Quantity) int64 {
	amount := quantity.Value()
	if quantity.CmpInt64(amount) < 0 {
		amount--
	}
	return amount
}
