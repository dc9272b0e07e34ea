package policy

// fragmenter works out the fragmented GPU milli of one node at a time, as it is and with a pod.
type fragmenter struct {
	mix    *Mix
	usable []usable // of the node that was looked at last, or with a pod
	kind   gpuType
}

func newFragmenter(mix *Mix) fragmenter {
	return fragmenter{mix: mix, usable: make([]usable, len(mix.milli))}
}

// look is the fragmented GPU milli of the node as it is.
func (f *fragmenter) look(node *Node) float64 {
	f.kind = f.mix.gpuType(node)
	countUsable(f.mix, node.GPUFree, 0, 0, f.usable)
	sums := fragmented(f.mix, f.usable, node.CPU.Free, node.idle(), f.kind, difference{})
	return sums.total()
}

// with is that of the node that was looked at last with the pod on the devices of the bit mask.
func (f *fragmenter) with(node *Node, pod *Pod, devices uint64) float64 {
	taken := node.taken(pod)
	change := difference{taken, Whole, Whole - pod.GPUMilli}
	if taken > 0 && pod.GPUMilli < Whole {
		if taken > 1 { // devices that differ: they are counted anew
			countUsable(f.mix, node.GPUFree, devices, pod.GPUMilli, f.usable)
			change = difference{}
		} else {
			left := node.GPUFree[first(devices)]
			change = difference{1, left, left - pod.GPUMilli}
		}
	}
	idle := node.idle() - taken*pod.GPUMilli
	sums := fragmented(f.mix, f.usable, node.CPU.Free-pod.CPU, idle, f.kind, change)
	return sums.total()
}
