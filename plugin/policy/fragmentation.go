package policy

// causes is fragmented GPU milli by why typical pods cannot use them, in the order of summation: the node lacks both CPU
// and GPU, GPU alone, CPU alone; the pod wants no GPU, with and without the CPU for it; it does not accept the model.
//
// F_n(M) = sum over typical pods m of share_m f_n(m), where f_n(m) is the idle GPU milli of node n that m cannot use: all
// of it if m does not fit (or wants no GPU), otherwise what lies on devices too full for m. Source: Weng et al., "Beware
// of Fragmentation", USENIX ATC 2023, with the artifact's order of summation: its last bits decide truncated scores.
type causes [6]float64

func (c *causes) total() float64 {
	total := 0.0
	for _, each := range c {
		total += each
	}
	return total
}

// usable counts the devices of a node that are enough for what typical pods ask for.
type usable struct {
	enough int64 // devices with at least that many milli left
	few    int64 // milli left on the others
}

// countUsable counts devices by Mix.milli, into out. Those of the bit mask count with so many milli less.
func countUsable(mix *Mix, free []int64, devices uint64, less int64, out []usable) {
	for v, milli := range mix.milli {
		found := usable{}
		for d, left := range free {
			if devices>>d&1 != 0 {
				left -= less
			}
			if left >= milli {
				found.enough++
			} else {
				found.few += left
			}
		}
		out[v] = found
	}
}

// difference is how many devices would have something else left than now: old milli now, and then new ones.
type difference struct{ devices, old, new int64 }

// fragmented sums the causes for a node with devices of a type and so much milli-CPU and idle GPU milli.
func fragmented(mix *Mix, found []usable, cpu, idle int64, kind gpuType, change difference) causes {
	var sums causes
	accepts, all := mix.accepts[kind], float64(idle)
	for m := range mix.pods {
		pod := &mix.pods[m]
		enoughCPU, lost := cpu >= pod.cpu, float64(pod.share*all)
		switch {
		case pod.count == 0 && enoughCPU:
			sums[3] += lost
		case pod.count == 0:
			sums[4] += lost
		case !accepts[m]:
			sums[5] += lost
		default:
			here, milli := found[pod.value], mix.milli[pod.value]
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
	return sums
}

// with is what is usable after the change, for pods that ask for so many milli of each device.
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
