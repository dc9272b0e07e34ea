package gpus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// Node is a node's GPUs as its pods leave them.
type Node struct {
	Model string  // "" if none is known
	Free  []int64 // milli left of each device; below 0 where pods were bound to more than there is
	Pods  []int64 // pods with GPUs: first those with parts of devices, then those with one whole device, two, ...
	Err   error   // what is wrong with the node's offer, which then counts as none
}

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
	found := Node{Model: offer.Model, Err: err}
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
		if request.Fits(found.Free) {
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
	n.count(request)
	if devices == 0 || devices>>len(n.Free) != 0 {
		return append(lost, request)
	}
	n.take(devices, request.Milli)
	return lost
}

// plain is what a pod asks for by its containers alone.
func plain(pod *v1.Pod) Request {
	count, err := pluginDevices(pod)
	if err != nil || count == 0 {
		return Request{}
	}
	return Request{Count: count, Milli: whole}
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
