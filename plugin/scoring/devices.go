package scoring

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Chooser chooses GPU devices on a node. Several goroutines may ask at a time.
type Chooser interface {
	// Devices are those of the node that the pod, which fits there, would get, as a bit mask; false if there is no
	// opinion. The node is that of the snapshot of this scheduling cycle, without the pod.
	Devices(pod *v1.Pod, node fwk.NodeInfo) (uint64, bool)
}

// choosers are those of the profiles of this process.
var choosers sync.Map // of Chooser by the profile's name

// Offer makes a profile's chooser known to the other plugins of the profile, in place of an earlier one.
func Offer(profile string, chooser Chooser) { choosers.Store(profile, chooser) }

// ChooserOf is the chooser of a profile, nil if there is none. Plugins are made in any order, so it is asked for when it
// is needed, not when a plugin is made.
func ChooserOf(profile string) Chooser {
	found, _ := choosers.Load(profile)
	chooser, _ := found.(Chooser)
	return chooser
}
