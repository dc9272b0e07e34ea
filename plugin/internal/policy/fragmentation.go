package policy

import (
	"context"
	"math"
	"math/bits"
)

// usable counts the devices of a node that are enough for what typical pods request.
type usable struct {
	enough int64 // devices with at least that many milli left
	few    int64 // milli left on the others
}

// countUsableDevices counts devices by Profile.milli, into out. Those of the bit mask count with so many milli less.
func countUsableDevices(profile *Profile, free []int64, devices uint64, less int64, out []usable) {
	for v, milli := range profile.milli {
		result := usable{}
		for d, left := range free {
			if devices>>d&1 != 0 {
				left -= less
			}
			if left >= milli {
				result.enough++
			} else {
				result.few += max(left, 0)
			}
		}
		out[v] = result
	}
}

// difference is how many devices would have something else left than now: old milli now, and then new ones.
type difference struct{ devices, old, new int64 }

// fragmented returns F_n(M), the fragmented GPU milli of a node with devices of a type and so much milli-CPU and idle
// GPU milli: the sum over typical pods m of share_m f_n(m), where f_n(m) is the idle GPU milli of node n that m cannot
// use: all of it if m does not fit (or requests no GPU), otherwise what lies on devices too full for m. Source: Weng et
// al., "Beware of Fragmentation", USENIX ATC 2023, with the artifact's order of summation: its last bits decide
// truncated scores.
func fragmented(profile *Profile, result []usable, cpu, idle int64, kind gpuType, change difference) float64 {
	// By cause: the node lacks both CPU and GPU, GPU alone, CPU alone; the pod requests no GPU, with and without the CPU
	// for it; it does not accept the model.
	var sums [6]float64
	accepts, all := profile.accepts[kind], float64(idle)
	for m := range profile.pods {
		pod := &profile.pods[m]
		enoughCPU, lost := cpu >= pod.cpu, float64(pod.share*all)
		switch {
		case pod.count == 0 && enoughCPU:
			sums[3] += lost
		case pod.count == 0:
			sums[4] += lost
		case !accepts[m]:
			sums[5] += lost
		default:
			here, milli := result[pod.value], profile.milli[pod.value]
			if change.devices > 0 {
				here = here.with(change, milli)
			}
			switch {
			case here.enough >= pod.count && enoughCPU:
				sums[1] += float64(pod.share * float64(here.few))
			case here.enough >= pod.count:
				sums[2] += lost
			case enoughCPU:
				sums[1] += lost
			default:
				sums[0] += lost
			}
		}
	}
	total := 0.0
	for _, each := range sums {
		total += each
	}
	return total
}

// with returns what is usable after the change, for pods that request so many milli of each device.
func (u usable) with(change difference, milli int64) usable {
	if change.old >= milli {
		u.enough -= change.devices
	} else {
		u.few -= change.devices * change.old
	}
	if change.new >= milli {
		u.enough += change.devices
	} else {
		u.few += change.devices * change.new
	}
	return u
}

// fragmenter computes the fragmented GPU milli of one node at a time, as it is and with a pod.
type fragmenter struct {
	profile *Profile
	usable  []usable // of the node that was looked at last, or with a pod
	kind    gpuType
}

func newFragmenter(profile *Profile) fragmenter {
	return fragmenter{profile: profile, usable: make([]usable, len(profile.milli))}
}

// look returns the fragmented GPU milli of the node as it is.
func (f *fragmenter) look(node *Node) float64 {
	f.kind = f.profile.gpuType(node)
	countUsableDevices(f.profile, node.GPU.Free, 0, 0, f.usable)
	return fragmented(f.profile, f.usable, node.CPU.Free, node.GPU.idle(), f.kind, difference{})
}

// with returns that of the node that was looked at last with the pod on the devices of the bit mask.
func (f *fragmenter) with(node *Node, pod *Pod, devices uint64) float64 {
	taken := node.GPU.taken(&pod.GPU)
	change := difference{taken, Whole, Whole - pod.GPU.Milli}
	if taken > 0 && pod.GPU.Milli < Whole {
		if taken > 1 { // devices that differ: they are counted again
			countUsableDevices(f.profile, node.GPU.Free, devices, pod.GPU.Milli, f.usable)
			change = difference{}
		} else {
			left := node.GPU.Free[bits.TrailingZeros64(devices)]
			change = difference{1, left, left - pod.GPU.Milli}
		}
	}
	idle := node.GPU.idle() - taken*pod.GPU.Milli
	return fragmented(f.profile, f.usable, node.CPU.Free-pod.CPU, idle, f.kind, change)
}

// fgd scores int(100 sigmoid((F_before - F_after) / 1000)), F the fragmented GPU milli of the node (fragmentation
// gradient descent): the least fragmentation added.
type fgd struct{ fragmenter }

// gradient returns FGD's points, 0 to 100, for a change of fragmentation, both in GPU milli.
func gradient(before, after float64) int64 {
	return int64(100 * (1 / (1 + math.Exp(-(before-after)/1000))))
}

func (f *fgd) scores(ctx context.Context, state *State, pod *Pod, candidates []int, out []float64) error {
	return scoreFitting(ctx, state, pod, candidates, out, func(_ int, node *Node) float64 {
		points, _ := f.best(node, pod)
		return float64(points)
	})
}

func (f *fgd) devices(node *Node, pod *Pod) uint64 {
	_, devices := f.best(node, pod)
	return devices
}

// best returns the score of the node, and the devices of the pod there: of a share, the one that scores best.
func (f *fgd) best(node *Node, pod *Pod) (int64, uint64) {
	before := f.look(node)
	if pod.kind() != gpuShare {
		devices := node.GPU.BestFit(&pod.GPU)
		return gradient(before, f.with(node, pod, devices)), devices
	}
	best, chosen := int64(-1), uint64(0)
	for d, left := range node.GPU.Free {
		if left < pod.GPU.Milli || node.GPU.hasEqualBefore(d) {
			continue
		}
		if points := gradient(before, f.with(node, pod, 1<<d)); points > best {
			best, chosen = points, 1<<d
		}
	}
	return best, chosen
}
