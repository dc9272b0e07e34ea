package scoring

import (
	"sync"

	v1 "k8s.io/api/core/v1"

	fwk "steersman.dev/plugin/internal/framework"
)

// DeviceSelector chooses GPU devices on a node. Several goroutines may ask at a time.
type DeviceSelector interface {
	// Devices returns the devices of the node that the pod, which fits there, would get, as a bit mask; false if the
	// selector does not choose. The node is that of the snapshot of this scheduling cycle, without the pod.
	Devices(pod *v1.Pod, node fwk.NodeInfo) (uint64, bool)
}

// selectors holds the selectors of the profiles of this process.
var selectors sync.Map // of DeviceSelector by the profile's name

// RegisterSelector makes a profile's selector known to the other plugins of the profile, in place of an earlier one.
func RegisterSelector(profile string, selector DeviceSelector) { selectors.Store(profile, selector) }

// DeviceSelectorFor returns the selector of a profile, nil if there is none. Plugins are created in any order, so ask
// when it is needed, not when a plugin is created.
func DeviceSelectorFor(profile string) DeviceSelector {
	result, _ := selectors.Load(profile)
	selector, _ := result.(DeviceSelector)
	return selector
}
