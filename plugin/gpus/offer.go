package gpus

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"steersman.dev/plugin/policy"
)

// Offer is what a node has: so many devices of one model, "" if none is known.
type Offer struct {
	Count int
	Model string
}

// OfferOf is what a node has. GPUs that pods share are stated in its allocatable or capacity, whole ones by a device
// plugin; both may be there for the same devices. The error names the field that is wrong.
func OfferOf(node *v1.Node) (Offer, error) {
	plugin, err := pluginOffer(node)
	if err != nil {
		return Offer{}, err
	}
	count, stated, err := sharedOffer(node)
	switch {
	case err != nil:
		return Offer{}, err
	case !stated:
		count = plugin
	case plugin >= 0 && plugin != count:
		problem := fmt.Sprintf("%d contradicts the %d devices of the device plugin", count, plugin)
		return Offer{}, offerError(CountKey, problem)
	}
	if count > policy.MaxDevices {
		problem := fmt.Sprintf("has %d GPUs; a node may have %d at most", count, policy.MaxDevices)
		return Offer{}, &FieldError{"status.allocatable", problem}
	}
	if count <= 0 {
		return Offer{}, nil
	}
	return Offer{int(count), modelOf(node)}, nil
}

func modelOf(node *v1.Node) string {
	for _, key := range modelLabels {
		if model := node.Labels[key]; model != "" {
			return model
		}
	}
	return ""
}

// pluginOffer is the devices of a device plugin, -1 if there is none.
func pluginOffer(node *v1.Node) (int64, error) {
	count, kinds := int64(-1), 0
	for _, name := range pluginResources {
		found, ok := node.Status.Allocatable[name]
		if !ok {
			continue
		}
		if found.Sign() > 0 {
			kinds++
		}
		count = max(count, 0) + roundedDown(found)
	}
	if kinds > 1 {
		problem := fmt.Sprintf("has devices of both %s and %s; a node's GPUs must be of one kind",
			pluginResources[0], pluginResources[1])
		return 0, &FieldError{"status.allocatable", problem}
	}
	return count, nil
}

// sharedOffer is the devices that pods share, and whether the node says anything about them.
func sharedOffer(node *v1.Node) (count int64, stated bool, err error) {
	counted, haveCount := statedBy(node, CountKey)
	milli, haveMilli := statedBy(node, MilliKey)
	switch {
	case haveCount:
		count = counted
	case haveMilli:
		count = milli / whole
	default:
		return 0, false, nil
	}
	// The milli are those of all devices, or of one: both are in use.
	if haveMilli && count <= policy.MaxDevices && milli != count*whole && milli != min(count, 1)*whole {
		problem := fmt.Sprintf("%d does not go with %d devices of %d; %d is right", milli, count, whole, count*whole)
		return 0, true, offerError(MilliKey, problem)
	}
	return count, true, nil
}

func statedBy(node *v1.Node, key v1.ResourceName) (int64, bool) {
	found, ok := node.Status.Allocatable[key]
	if !ok {
		found, ok = node.Status.Capacity[key]
	}
	return roundedDown(found), ok
}

func offerError(key, problem string) error {
	return &FieldError{"status.allocatable['" + key + "']", problem}
}
