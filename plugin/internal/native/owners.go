package native

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/podowner"
)

// owners counts the pods on nodes by their owners.
type owners struct {
	nodes  map[podowner.Owner]map[int]int64
	onNode []map[podowner.Owner]int64
}

func newOwners(nodes int) *owners {
	return &owners{map[podowner.Owner]map[int]int64{}, make([]map[podowner.Owner]int64, nodes)}
}

func (o *owners) recount(n int, info fwk.NodeInfo) {
	for each := range o.onNode[n] {
		delete(o.nodes[each], n)
		if len(o.nodes[each]) == 0 {
			delete(o.nodes, each)
		}
	}
	result := map[podowner.Owner]int64{}
	for _, each := range info.GetPods() {
		if whose := podowner.Of(each.GetPod()); whose.Name != "" {
			result[whose]++
		}
	}
	o.onNode[n] = result
	for each, count := range result {
		if o.nodes[each] == nil {
			o.nodes[each] = map[int]int64{}
		}
		o.nodes[each][n] = count
	}
}

// of returns on which nodes how many pods of the pod's owner run.
func (o *owners) of(pod *v1.Pod) (nodes, counts []int64) {
	running := o.nodes[podowner.Of(pod)]
	for _, n := range slices.Sorted(maps.Keys(running)) {
		nodes, counts = append(nodes, int64(n)), append(counts, running[n])
	}
	return nodes, counts
}
