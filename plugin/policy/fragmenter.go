package policy

// fragmenter works out the fragmented GPU milli of one node at a time, as it is and with a pod.
type fragmenter struct {
	mix    *Mix
	usable []usable // of the node that was looked at last, or with a pod
	model  int
}

func newFragmenter(mix *Mix) fragmenter {
	return fragmenter{mix: mix, usable: make([]usable, len(mix.milli))}
}

// look is the fragmented GPU milli of the node as it is.
func (f *fragmenter) look(node *Node) float64 {
	f.model = f.mix.model(node)
	countUsable(f.mix, node.GPUFree, 0, 0, f.usable)
	sums := fragmented(f.mix, f.usable, node.CPU.Free, node.idle(), f.model, difference{})
	return sums.total()
}

// with is that of the node that was looked at last with the pod on the devices of the bit mask.
func (f *fragmenter) with(node *Node, pod *Pod, devices uint64) float64 {
	change := difference{pod.GPUCount, Whole, Whole - pod.GPUMilli}
	if pod.GPUCount > 0 && pod.GPUMilli < Whole {
		if pod.GPUCount > 1 { // devices that differ: they are counted anew
			countUsable(f.mix, node.GPUFree, devices, pod.GPUMilli, f.usable)
			change = difference{}
		} else {
			left := node.GPUFree[first(devices)]
			change = difference{1, left, left - pod.GPUMilli}
		}
	}
	idle := node.idle() - pod.GPUCount*pod.GPUMilli
	sums := fragmented(f.mix, f.usable, node.CPU.Free-pod.CPU, idle, f.model, change)
	return sums.total()
}
