package native

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fwk "steersman.dev/plugin/internal/framework"
)

// ownerKey is an annotation for the owner of a pod without a controller, "Kind/name".
const ownerKey = "steersman.dev/owner"

// owner is whose a pod is: its controller, or whom an annotation names. There is none where name is "".
type owner struct{ namespace, name string }

func ownerOf(pod *v1.Pod) owner {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return owner{pod.Namespace, controller.Kind + "/" + controller.Name}
	}
	return owner{pod.Namespace, pod.Annotations[ownerKey]}
}

// owners counts the pods on nodes by their owners.
type owners struct {
	nodes  map[owner]map[int]int
	onNode []map[owner]int
}

func newOwners(nodes int) *owners {
	return &owners{map[owner]map[int]int{}, make([]map[owner]int, nodes)}
}

// recount counts the pods of a node again.
func (o *owners) recount(n int, info fwk.NodeInfo) {
	for each := range o.onNode[n] {
		delete(o.nodes[each], n)
		if len(o.nodes[each]) == 0 {
			delete(o.nodes, each)
		}
	}
	result := map[owner]int{}
	for _, each := range info.GetPods() {
		if whose := ownerOf(each.GetPod()); whose.name != "" {
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
	if whose := ownerOf(pod); whose.name != "" {
		return maps.Clone(o.nodes[whose])
	}
	return nil
}
