package gpu

import (
	"slices"
	"strings"
)

const (
	// Whole is the milli of a whole device.
	Whole = 1000
	// MaxDevices is how many devices of a node are looked at: those of a placement are a bit mask.
	MaxDevices = 62
)

// GPUs are a node's GPUs as its pods leave them.
type GPUs struct {
	Model     string    // "" if it is unknown
	Resources []string  // the names under which the devices are offered; empty: any
	Free      []int64   // milli left of each device; below 0 where pods were bound to more than there is
	Counted   []Counted // further GPUs, which are not looked at one by one
	Pods      []int64   // pods with devices: first those with parts, then those with one Whole device, with two, ...
}

// Counted is GPUs that a node counts like an extended resource; none of its devices are among them.
type Counted struct {
	Resource string // the name under which they are offered
	Model    string // "" if it is unknown
	Free     int64
}

// Request is what a pod requests: so many devices, with so many milli of each, 1 to Whole. Without GPUs it is empty.
type Request struct {
	Count, Milli int64
	Models       string // A|B: those that will do; "": all
	Resource     string // the name under which a node must offer them, CountKey if annotations request the devices
}

// Accepts reports whether devices of the model will do; "" is an unknown model.
func (r *Request) Accepts(model string) bool {
	if r.Models == "" {
		return true
	}
	for each := range strings.SplitSeq(r.Models, "|") {
		if each == model && model != "" {
			return true
		}
	}
	return false
}

// CountedAs returns the GPUs of a name that are counted, so that pods get none of the devices; nil if there are none.
func (g *GPUs) CountedAs(resource string) *Counted {
	for i := range g.Counted {
		if g.Counted[i].Resource == resource {
			return &g.Counted[i]
		}
	}
	return nil
}

// Offers reports whether pods that request GPUs of a name, "" for any, may have the devices.
func (g *GPUs) Offers(resource string) bool {
	return resource == "" || len(g.Resources) == 0 || slices.Contains(g.Resources, resource)
}

// Accepts reports whether the GPUs for a request are of a model that it accepts.
func (g *GPUs) Accepts(request *Request) bool {
	if counted := g.CountedAs(request.Resource); counted != nil {
		return request.Accepts(counted.Model)
	}
	return request.Accepts(g.Model)
}

// Fits reports whether enough GPUs of the name that is requested are left, of whatever model.
func (g *GPUs) Fits(request *Request) bool {
	if counted := g.CountedAs(request.Resource); counted != nil {
		return request.Milli == Whole && request.Count <= counted.Free
	}
	var fitting int64
	for _, left := range g.Free {
		if left >= request.Milli {
			fitting++
		}
	}
	return fitting >= request.Count && g.Offers(request.Resource)
}

// BestFit returns the devices that a pod, which must fit, takes by default, as a bit mask: the fullest that suffice,
// the lowest index on ties; none where its GPUs are counted.
func (g *GPUs) BestFit(request *Request) uint64 {
	if g.CountedAs(request.Resource) != nil {
		return 0
	}
	var chosen uint64
	for range request.Count {
		best, least := -1, int64(Whole+1)
		for d, left := range g.Free {
			if request.Milli <= left && left < least && chosen>>d&1 == 0 {
				best, least = d, left
			}
		}
		if best < 0 {
			break
		}
		chosen |= 1 << best
	}
	return chosen
}
