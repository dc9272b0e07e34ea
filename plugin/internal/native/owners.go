package native

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/podowner"
)

// owners counts the pods on nodes by their owners.
type owners struct {
	nodes  map[podowner.Owner]map[int]int
	onNode []map[podowner.Owner]int
}

func newOwners(nodes int) *owners {
	return &owners{map[podowner.Owner]map[int]int{}, make([]map[podowner.Owner]int, nodes)}
}

// recount counts the pods of a node again.
func (o *owners) recount(n int, info fwk.NodeInfo) {
	for each := range o.onNode[n] {
		delete(o.nodes[each], n)
		if len(o.nodes[each]) == 0 {
			delete(o.nodes, each)
		}
	}
	result := map[podowner.Owner]int{}
	for _, each := range info.GetPods() {
		if whose := podowner.Of(each.GetPod()); whose.Name != "" {
			result[whose]++
		}
	}
	o.onNode[n] = result
	for each, count := range result {
		if o.nodes[each] == nil {
			o.nodes[each] = map[int]int{}
		}
		o.nodes[each][n] = count
	}
}

// peers returns the number of running pods of the pod's owner by node.
func (o *owners) peers(pod *v1.Pod) map[int]int {
	if whose := podowner.Of(pod); whose.Name != "" {
		return maps.Clone(o.nodes[whose])
	}
	return nil
}
