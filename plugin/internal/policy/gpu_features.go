package policy

// Features of a node's state in the view gpu, in the order of policies/gpu_state/gpu_features.py, which says what they
// are.
const (
	fFragmented = iota
	fIdle
	fWhole
	fPart
	fPartIdle
	fUntouched
	fCPULeft
	fCPUShort
	fCPUSpare
	fLeastWaste
	fDead
	fLeftSquares
	fLostPlanned
	fFilled
	_ // the same of sequences of GPU pods
	features
)

// gpu is a milli of a device in GPUs.
const gpu = 1.0 / Whole

// row is the features of a state. Single precision is part of what they are.
type row [features]float32

// featureEncoder computes features. It has room for one state at a time.
type featureEncoder struct {
	profile   *Profile
	leftovers *leftovers
	left      [MaxDevices]int64 // milli left of the devices that have any, the most first
	rest      [MaxDevices]int64 // the same in a sequence
	usable    []usable          // by Profile.milli
}

// encode computes the features of a node if it had so much milli-CPU left, and the devices of the bit mask so many
// milli less. It returns the fragmented GPU milli unrounded: truncated scores hang on its last bits.
func (f *featureEncoder) encode(node *Node, kind gpuType, cpu int64, devices uint64, milli int64, out *row) float64 {
	live := f.sortDevices(node, devices, milli)
	idle := f.encodeDevices(live, out)
	out[fUntouched] = 0
	usable := f.leftovers.usableCPU(node.CPU.Allocatable, node.Memory.Allocatable)
	if out[fWhole] == float32(len(node.GPU.Free)) && cpu == usable {
		out[fUntouched] = 1
	}
	countUsableDevices(f.profile, f.left[:live], 0, 0, f.usable)
	total := fragmented(f.profile, f.usable, cpu, idle, kind, difference{})
	out[fFragmented] = float32(total * gpu)
	beyond := (float64(cpu) - float64(float64(idle)*f.leftovers.cpuPerGPU)) / f.leftovers.cpuUnit
	out[fCPULeft] = float32(float64(cpu) / f.leftovers.cpuUnit)
	out[fCPUShort], out[fCPUSpare] = float32(max(0.0, -beyond)), float32(max(0.0, beyond))
	f.fillSequences(live, idle, kind, cpu, out)
	return total
}

// sortDevices sorts what would be left of the devices, and counts those that have anything left.
func (f *featureEncoder) sortDevices(node *Node, devices uint64, milli int64) int {
	live := 0
	for i, amount := range node.GPU.Free {
		if devices>>i&1 != 0 {
			amount -= milli
		}
		if amount > 0 {
			at := live
			for at > 0 && f.left[at-1] < amount {
				f.left[at] = f.left[at-1]
				at--
			}
			f.left[at] = amount
			live++
		}
	}
	return live
}

// encodeDevices writes the sums over devices, and returns the GPU milli left on all of them.
func (f *featureEncoder) encodeDevices(live int, out *row) int64 {
	var ints, partial, partIdle int64
	var planned, leastWaste, dead, squares float64
	for _, left := range f.left[:live] {
		if left == Whole {
			ints++
		} else {
			partial++
			partIdle += left
		}
		known := &f.leftovers.byDeviceLeft[left]
		planned += known.planned
		leastWaste += known.leastWaste
		dead += known.dead
		squares += known.square
	}
	idle := ints*Whole + partIdle
	out[fLostPlanned], out[fLeastWaste], out[fDead] = float32(planned), float32(leastWaste), float32(dead)
	out[fLeftSquares] = float32(squares)
	out[fIdle], out[fPartIdle] = float32(float64(idle)*gpu), float32(float64(partIdle)*gpu)
	out[fWhole], out[fPart] = float32(ints), float32(partial)
	return idle
}

// cacheSize is of how many states a worker keeps the features, a power of two: 3 MiB.
const cacheSize = 1 << 15

type cachedState struct {
	key        uint64
	fragmented float64 // GPU milli
	row        row
}

// stateCache computes the features of nodes' states and keeps them by a hash, since few states occur again and again.
// Of states with the same entry, the last one is kept.
type stateCache struct {
	*featureEncoder
	kept []cachedState
	kind gpuType // of the devices of the node that was looked at last
	key  uint64  // the hash of what is fixed about it, and of its devices as they are
}

func newStateCache(profile *Profile, leftovers *leftovers) *stateCache {
	encoder := &featureEncoder{profile: profile, leftovers: leftovers, usable: make([]usable, len(profile.milli))}
	return &stateCache{featureEncoder: encoder, kept: make([]cachedState, cacheSize)}
}

// look returns what is cached of the node as it is; a copy, since another state may take its place.
func (s *stateCache) look(node *Node) cachedState {
	s.kind = s.profile.gpuType(node)
	cpu := s.leftovers.usableCPU(node.CPU.Allocatable, node.Memory.Allocatable)
	s.key = mixHash(mixHash(uint64(s.kind)*goldenRatio+uint64(len(node.GPU.Free)))*goldenRatio + uint64(cpu))
	for _, left := range node.GPU.Free {
		s.key += deviceKey(left)
	}
	return *s.find(node, s.key, s.leftovers.usableCPU(node.CPU.Free, node.Memory.Free), 0, 0)
}

// with returns what is cached of the node that was looked at last with the pod on the devices of the bit mask. It is
// valid until another state is looked at.
func (s *stateCache) with(node *Node, pod *Pod, devices uint64) *cachedState {
	key := s.key
	for d, left := range node.GPU.Free {
		if devices>>d&1 != 0 {
			key += deviceKey(left-pod.GPU.Milli) - deviceKey(left)
		}
	}
	cpu := s.leftovers.usableCPU(node.CPU.Free-pod.CPU, node.Memory.Free-pod.Memory)
	return s.find(node, key, cpu, devices, pod.GPU.Milli)
}

func (s *stateCache) find(node *Node, devicesKey uint64, cpu int64, devices uint64, milli int64) *cachedState {
	key := mixHash(devicesKey+uint64(cpu)*goldenRatio) | 1 // never 0, which is that of an empty place
	result := &s.kept[key>>20&(cacheSize-1)]
	if result.key != key {
		result.fragmented = s.encode(node, s.kind, cpu, devices, milli, &result.row)
		result.key = key
	}
	return result
}

const goldenRatio = 0x9E3779B97F4A7C15

// mixHash applies SplitMix64's finaliser (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
func mixHash(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// deviceKey returns a device's part of the hash; parts are added, so that their order does not matter.
func deviceKey(left int64) uint64 { return mixHash(uint64(left) * goldenRatio) }
