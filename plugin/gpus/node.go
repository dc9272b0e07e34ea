package gpus

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/policy"
)

// Node is a node's GPUs as its pods leave them.
type Node struct {
	Model     string           // "" if none is known
	Resources []string         // the names under which the devices are offered
	Free      []int64          // milli left of each device; below 0 where pods were bound to more than there is
	Counted   []policy.Counted // GPUs that are not looked at one by one, as pods leave them
	Pods      []int64          // pods with devices: first those with parts, then those with one whole device, two, ...
	Err       error            // what is wrong with the node's offer, which then counts as none
}

// Accepts tells whether the GPUs that the node has for a pod are of a model that it accepts.
func (n *Node) Accepts(request Request) bool {
	if counted := n.counted(request.Resource); counted != nil {
		return request.Accepts(counted.Model)
	}
	return request.Accepts(n.Model)
}

// Fits tells whether enough GPUs of the name that is asked for are left.
func (n *Node) Fits(request Request) bool {
	if counted := n.counted(request.Resource); counted != nil {
		return request.Milli == whole && request.Count <= counted.Free
	}
	return n.offers(request.Resource) && request.Fits(n.Free)
}

// Counts tells whether the node counts GPUs of this name, so that a pod has none of its devices.
func (n *Node) Counts(resource string) bool { return n.counted(resource) != nil }

func (n *Node) counted(resource string) *policy.Counted {
	for i := range n.Counted {
		if n.Counted[i].Resource == resource {
			return &n.Counted[i]
		}
	}
	return nil
}

// offers tells whether the devices are offered under a name.
func (n *Node) offers(resource string) bool { return slices.Contains(n.Resources, resource) }

// Free is the milli left of each device of a node.
func Free(info fwk.NodeInfo) []int64 { return Assumed.Look(info).Free }

// Look counts a node's devices. It parses all pods of the node, so keep what it finds by the node's generation.
//
// The cache of the scheduler has a pod on its node, with another generation of it, before the pod's devices are reserved,
// but shows it to nobody before the next pod's turn: what is kept by generation is right.
func Look(info fwk.NodeInfo) Node { return Assumed.Look(info) }

// Look is the same with the pods of this ledger.
func (l *Ledger) Look(info fwk.NodeInfo) Node { return l.LookWithout(info, "") }

// LookWithout is Look as if one pod was not there.
//
// A pod counts on its devices even where that makes more than a whole one. Where nothing says which devices it holds, or
// the node does not have them, it counts on those that fit best, after all others, and on none if none fit. A pod whose
// annotations make no sense counts as one without any.
func (l *Ledger) LookWithout(info fwk.NodeInfo, pod types.UID) Node {
	node := info.Node()
	if node == nil {
		return Node{}
	}
	offer, err := OfferOf(node)
	found := Node{Model: offer.Model, Resources: offer.Resources, Counted: offer.Counted, Err: err}
	if offer.Count > 0 {
		found.Free = make([]int64, offer.Count)
	}
	for d := range found.Free {
		found.Free[d] = whole
	}
	var lost []Request
	for _, each := range info.GetPods() {
		if there := each.GetPod(); there.UID != pod {
			lost = found.add(l, there, lost)
		}
	}
	for _, request := range lost {
		if found.Fits(request) {
			found.take(request.BestFit(found.Free), request.Milli)
		}
	}
	return found
}

// add counts a pod; those whose devices are not known are appended to lost.
func (n *Node) add(ledger *Ledger, pod *v1.Pod, lost []Request) []Request {
	request, err := RequestOf(pod)
	if err == nil && request.Count == 0 && pod.Annotations[IndexKey] == "" {
		return lost
	}
	devices, known := uint64(0), false
	if err == nil {
		devices, known = ledger.devices(pod, pod.Spec.NodeName, request.Count)
	}
	if !known {
		request, devices = plain(pod), 0
	}
	if request.Count == 0 {
		return lost
	}
	if counted := n.counted(request.Resource); counted != nil {
		counted.Free -= request.Count
		return lost
	}
	n.count(request)
	if devices == 0 || devices>>len(n.Free) != 0 {
		return append(lost, request)
	}
	n.take(devices, request.Milli)
	return lost
}

// plain is what a pod asks for by its containers alone.
func plain(pod *v1.Pod) Request {
	count, name, err := pluginDevices(pod)
	if err != nil || count == 0 {
		return Request{}
	}
	return Request{Count: count, Milli: whole, Resource: name}
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

// roundedDown is a quantity as a whole number.
func roundedDown(quantity resource.Quantity) int64 {
	amount := quantity.Value()
	if quantity.CmpInt64(amount) < 0 {
		amount--
	}
	return amount
}
