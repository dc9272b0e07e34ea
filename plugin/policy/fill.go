package policy

// fill is what fixed sequences of typical pods would leave of the node, had it only itself: GPU midway and at the end,
// and CPU, for all typical pods and for those with GPUs.
func (d *describer) fill(live int, idle int64, kind gpuType, cpu int64, out *row) {
	for live > 0 && d.left[live-1] < d.outlook.smallest {
		live-- // of no use to any pod
	}
	const half = sequences / 2
	for part := range 2 {
		var midways, idles, cpus int64
		for s := part * half; s < (part+1)*half; s++ {
			halfway, end, free := d.play(d.outlook.sequences[kind][s], live, idle, cpu, part == 1)
			midways += halfway
			idles += end
			cpus += free
		}
		out[fFilled+3*part] = float32(float64(midways) * gpu / half)
		out[fFilled+3*part+1] = float32(float64(idles) * gpu / half)
		out[fFilled+3*part+2] = float32(float64(cpus) / d.outlook.cpuUnit / half)
	}
}

// play places the pods of a sequence: GPU milli left midway and at the end, and milli-CPU left.
func (d *describer) play(steps []step, live int, idle, cpu int64, gpusAlone bool) (int64, int64, int64) {
	rest := d.rest[:live]
	copy(rest, d.left[:live])
	halfway, passed := int64(0), false
	for j := range steps {
		if cpu < d.outlook.leastCPU || gpusAlone && (live == 0 || rest[0] < d.outlook.smallest) {
			break // nothing fits any more
		}
		if each := &steps[j]; each.cpu <= cpu {
			if each.devices == 0 {
				cpu -= each.cpu
			} else if each.devices <= int64(live) && rest[each.devices-1] >= each.milli {
				take(rest, each.devices, each.milli)
				cpu -= each.cpu
				idle -= each.devices * each.milli
			}
		}
		if j == midway {
			halfway, passed = idle, true
		}
	}
	if !passed {
		halfway = idle
	}
	return halfway, idle, cpu
}

// take takes milli of the fullest device that suffices, as often as wanted; there are enough. What is left stays sorted.
func take(rest []int64, wanted, milli int64) {
	for range wanted {
		i := len(rest) - 1
		for rest[i] < milli {
			i--
		}
		amount := rest[i] - milli
		for i+1 < len(rest) && rest[i+1] > amount {
			rest[i] = rest[i+1]
			i++
		}
		rest[i] = amount
	}
}
