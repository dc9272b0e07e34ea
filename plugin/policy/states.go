package policy

// statesKept is how many states' features a worker keeps, a power of two: 7 MiB.
const statesKept = 1 << 15

// known is what is known of a state.
type known struct {
	key        uint64
	fragmented float64 // GPU milli
	row        row
}

// states describes states of nodes, and keeps what it found by a hash: the same few come again and again. Of states that
// share a place, the last one is kept.
type states struct {
	*describer
	kept []known
	kind gpuType // of the devices of the node that was looked at last
	key  uint64  // the hash of what is fixed about it, and of its devices as they are
}

func newStates(mix *Mix, outlook *outlook) *states {
	return &states{describer: newDescriber(mix, outlook), kept: make([]known, statesKept)}
}

// look is what is known of the node as it is; a copy, since another state may take its place.
func (s *states) look(node *Node) known {
	s.kind = s.mix.gpuType(node)
	cpu := s.outlook.usableCPU(node.CPU.Allocatable, node.Memory.Allocatable)
	s.key = mixed(mixed(uint64(s.kind)*golden+uint64(len(node.GPUFree)))*golden + uint64(cpu))
	for _, left := range node.GPUFree {
		s.key += deviceKey(left)
	}
	return *s.find(node, s.key, s.outlook.usableCPU(node.CPU.Free, node.Memory.Free), 0, 0)
}

// with is what is known of the node that was looked at last with the pod on the devices of the bit mask. It is valid
// until another state is looked at.
func (s *states) with(node *Node, pod *Pod, devices uint64) *known {
	key := s.key
	for d, left := range node.GPUFree {
		if devices>>d&1 != 0 {
			key += deviceKey(left-pod.GPUMilli) - deviceKey(left)
		}
	}
	cpu := s.outlook.usableCPU(node.CPU.Free-pod.CPU, node.Memory.Free-pod.Memory)
	return s.find(node, key, cpu, devices, pod.GPUMilli)
}

func (s *states) find(node *Node, devicesKey uint64, cpu int64, devices uint64, milli int64) *known {
	key := mixed(devicesKey+uint64(cpu)*golden) | 1 // never 0, which is that of an empty place
	found := &s.kept[key>>20&(statesKept-1)]
	if found.key != key {
		found.fragmented = s.describe(node, s.kind, cpu, devices, milli, &found.row)
		found.key = key
	}
	return found
}

const golden = 0x9E3779B97F4A7C15

// mixed is SplitMix64's finaliser (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
func mixed(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// deviceKey is a device's part of the hash; parts are added, so that their order does not matter.
func deviceKey(left int64) uint64 { return mixed(uint64(left) * golden) }
