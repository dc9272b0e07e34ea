package gpu

import (
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"steersman.dev/plugin/internal/policy"
)

// Capacity is what a node has: so many devices of one model, "" if none is known, under these names; and further GPUs, of
// other vendors or more than can be looked at one by one, which are counted.
type Capacity struct {
	Count     int
	Model     string
	Resources []string
	Counted   []policy.Counted
}

// kind is devices of a node that are offered under the same names.
type kind struct {
	names []string
	count int64
}

func (k kind) isShared() bool { return k.names[0] == CountKey }

// CapacityOf returns what a node has. GPUs that pods share are stated in its allocatable or capacity, whole ones by a
// device plugin; where there are as many, they are the same devices. Of several kinds of devices one is looked at: that
// which pods share, or else the one with most devices, if policy.MaxDevices are not too few for it. The others are
// counted. The error names the field that is wrong.
func CapacityOf(node *v1.Node) (Capacity, error) {
	kinds, stated := pluginOffers(node)
	count, shares, err := sharedOffer(node)
	if err != nil {
		return Capacity{}, err
	}
	if shares {
		if kinds, err = withShared(kinds, stated, count); err != nil {
			return Capacity{}, err
		}
	}
	chosen := -1
	for i, each := range kinds {
		if each.count > policy.MaxDevices || chosen >= 0 && kinds[chosen].isShared() {
			continue
		}
		if chosen < 0 || each.count > kinds[chosen].count {
			chosen = i
		}
	}
	var result Capacity
	for i, each := range kinds {
		if i == chosen {
			result.Count, result.Model, result.Resources = int(each.count), ModelOf(node, each.names...), each.names
			continue
		}
		name := each.names[len(each.names)-1]
		result.Counted = append(result.Counted, policy.Counted{Resource: name, Model: ModelOf(node, name), Free: each.count})
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
		counts := []string{}
		for _, each := range kinds {
			counts = append(counts, fmt.Sprint(each.count))
		}
		others := strings.Join(counts, " and ")
		if others == "" {
			others = "0"
		}
		return nil, offerError(CountKey, fmt.Sprintf("%d contradicts the %s devices of the device plugin", count, others))
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
		count = milli / whole
	default:
		return 0, false, nil
	}
	// The milli are those of all devices, or of one: both are in use.
	all := int64(math.MaxInt64)
	if count <= math.MaxInt64/whole {
		all = count * whole
	}
	if haveMilli && milli != all && milli != min(count, 1)*whole {
		problem := fmt.Sprintf("%d does not go with %d devices of %d; expected %d", milli, count, whole, all)
		return 0, true, offerError(MilliKey, problem)
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

// mayServe reports whether the node could ever have what is requested, and how many such GPUs it has.
func (c Capacity) mayServe(request Request) (int64, bool) {
	node := Node{Model: c.Model, Resources: c.Resources, Counted: c.Counted}
	if counted := node.counted(request.Resource); counted != nil {
		return counted.Free, request.Milli == whole && counted.Free >= request.Count && request.Accepts(counted.Model)
	}
	enough := node.offers(request.Resource) && int64(c.Count) >= request.Count
	return int64(c.Count), enough && request.Accepts(c.Model)
}

// MayServeBetter reports whether a node that had another offer, nil if it is new, may fit now for a pod that it had
// none for.
func (c Capacity) MayServeBetter(former *Capacity, request Request) bool {
	now, enough := c.mayServe(request)
	if !enough || former == nil {
		return enough
	}
	before, wasEnough := former.mayServe(request)
	return !wasEnough || before < now
}

func offerError(key, problem string) error {
	return &FieldError{"status.allocatable['" + key + "']", problem}
}
