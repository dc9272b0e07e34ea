package gpu

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// kind is devices of a node that are offered under the same names.
type kind struct {
	names []string
	count int64
}

func (k kind) isShared() bool { return k.names[0] == CountKey }

// CapacityOf returns what a node has, all of it free. GPUs that pods share are stated in its allocatable or capacity,
// whole ones by a device plugin; where there are as many, they are the same devices. Of several kinds of devices one is
// looked at: that which pods share, or else the one with most devices, if MaxDevices are not too few for it. The
// others are counted. The error names the field that is wrong.
func CapacityOf(node *v1.Node) (GPUs, error) {
	kinds, stated := pluginOffers(node)
	count, shares, err := sharedOffer(node)
	if err == nil && shares {
		kinds, err = withShared(kinds, stated, count)
	}
	if err != nil {
		return GPUs{}, err
	}
	chosen := -1
	for i, each := range kinds {
		if each.count > MaxDevices || chosen >= 0 && kinds[chosen].isShared() {
			continue
		}
		if chosen < 0 || each.count > kinds[chosen].count {
			chosen = i
		}
	}
	var result GPUs
	for i, each := range kinds {
		if i == chosen {
			result.Model, result.Resources = ModelOf(node, each.names...), each.names
			result.Free = slices.Repeat([]int64{Whole}, int(each.count))
			continue
		}
		name := each.names[len(each.names)-1]
		result.Counted = append(result.Counted, Counted{Resource: name, Model: ModelOf(node, name), Free: each.count})
	}
	return result, nil
}

// withShared puts the devices that pods share before the others.
func withShared(kinds []kind, stated bool, count int64) ([]kind, error) {
	names := []string{CountKey}
	same := slices.IndexFunc(kinds, func(each kind) bool { return each.count == count })
	switch {
	case same >= 0:
		names = append(names, kinds[same].names...)
		kinds = slices.Delete(kinds, same, same+1)
	case stated && (count > 0 || len(kinds) > 0):
		var counts []string
		for _, each := range kinds {
			counts = append(counts, fmt.Sprint(each.count))
		}
		others := cmp.Or(strings.Join(counts, " and "), "0")
		return nil, offerError(CountKey, "%d contradicts the %s devices of the device plugin", count, others)
	}
	if count > 0 {
		kinds = slices.Insert(kinds, 0, kind{names, count})
	}
	return kinds, nil
}

// pluginOffers returns the devices of device plugins, and whether the node says anything about such.
func pluginOffers(node *v1.Node) (kinds []kind, stated bool) {
	for _, each := range pluginResources {
		result, ok := node.Status.Allocatable[each.name]
		stated = stated || ok
		if count := roundedDown(result); count > 0 {
			kinds = append(kinds, kind{[]string{string(each.name)}, count})
		}
	}
	return kinds, stated
}

// sharedOffer returns the devices that pods share, and whether the node says anything about them.
func sharedOffer(node *v1.Node) (count int64, stated bool, err error) {
	counted, haveCount := statedBy(node, CountKey)
	milli, haveMilli := statedBy(node, MilliKey)
	switch {
	case haveCount:
		count = counted
	case haveMilli:
		count = milli / Whole
	default:
		return 0, false, nil
	}
	// The milli are those of all devices, or of one: both are in use.
	all := int64(math.MaxInt64)
	if count <= math.MaxInt64/Whole {
		all = count * Whole
	}
	if haveMilli && milli != all && milli != min(count, 1)*Whole {
		return 0, true, offerError(MilliKey, "%d does not go with %d devices of %d; expected %d", milli, count, Whole, all)
	}
	return count, true, nil
}

func statedBy(node *v1.Node, key v1.ResourceName) (int64, bool) {
	result, ok := node.Status.Allocatable[key]
	if !ok {
		result, ok = node.Status.Capacity[key]
	}
	return roundedDown(result), ok
}

// MayFitNow reports whether a pod that a node had no room for may fit since the node's capacity changed; a new node had
// none before.
func MayFitNow(capacity, former *GPUs, request *Request) bool {
	isBetter := !mayFit(former, request) || number(former, request) < number(capacity, request)
	return isBetter && mayFit(capacity, request)
}

func mayFit(capacity *GPUs, request *Request) bool {
	return capacity.Accepts(request) && capacity.Fits(request)
}

func number(capacity *GPUs, request *Request) int64 {
	if counted := capacity.CountedAs(request.Resource); counted != nil {
		return counted.Free
	}
	return int64(len(capacity.Free))
}

func offerError(key, format string, args ...any) error {
	return fmt.Errorf("status.allocatable['%s']: "+format, append([]any{key}, args...)...)
}
