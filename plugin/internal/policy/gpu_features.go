package policy

import (
	"math"
)

// Features of a node's state in the view gpu, in the order of policies/gpu_state/gpu_features.py, which says what they are.
const (
	fFragmented  = 0
	fLackBoth    = 1
	fLackGPU     = 2
	fLackCPU     = 3
	fCPUPodLacks = 4
	fNoAccess    = 5
	fIdle        = 6
	fWhole       = 7
	fPart        = 8
	fPartIdle    = 9
	fAllWhole    = 10
	fUntouched   = 11
	fCPULeft     = 12
	fCPUShort    = 13
	fCPUSpare    = 14
	fFit         = 15
	fUsable      = fFit + groups
	fLeastWaste  = fUsable + groups
	fDead        = fLeastWaste + 1
	fInsisted    = fLeastWaste + 2
	fAccepted    = fLeastWaste + 3
	fLeftSquares = fLeastWaste + 4
	fProducts    = fLeastWaste + 5
	fTable       = fProducts + 9
	fFilled      = fTable + tables
	features     = fFilled + 6
)

const (
	enoughCPUPods = 8.0
	midway        = 7 // pods of a sequence after which its leftover is looked at for the first time
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
	fitting   []int64           // by Profile.milli, pods that fit
}

func newFeatureEncoder(profile *Profile, leftovers *leftovers) *featureEncoder {
	return &featureEncoder{profile: profile, leftovers: leftovers, usable: make([]usable, len(profile.milli)), fitting: make([]int64, len(profile.milli))}
}

// encode computes the features of a node if it had so much milli-CPU left, and the devices of the bit mask so many
// milli less. It returns the fragmented GPU milli unrounded: truncated scores hang on its last bits.
func (f *featureEncoder) encode(node *Node, kind gpuType, cpu int64, devices uint64, milli int64, out *row) float64 {
	live := f.sortDevices(node, devices, milli)
	idle := f.encodeDevices(live, len(node.GPUFree), out)
	out[fUntouched] = 0
	if cpu == f.leftovers.usableCPU(node.CPU.Allocatable, node.Memory.Allocatable) {
		out[fUntouched] = out[fAllWhole]
	}
	f.countDevices(live)
	total := f.encodeCauses(kind, idle, cpu, out)
	f.encodeGroups(kind, cpu, out)
	out[fInsisted] = float32(f.leftovers.demand[kind][0] * float64(idle) * gpu)
	out[fAccepted] = float32(f.leftovers.demand[kind][1] * float64(idle) * gpu)
	f.encodeCPU(idle, cpu, out)
	f.fillSequences(live, idle, kind, cpu, out)
	return total
}

// sortDevices sorts what would be left of the devices, and counts those that have anything left.
func (f *featureEncoder) sortDevices(node *Node, devices uint64, milli int64) int {
	live := 0
	for i, amount := range node.GPUFree {
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
func (f *featureEncoder) encodeDevices(live, count int, out *row) int64 {
	var ints, partial, partIdle int64
	var lost [tables]float64
	var leastWaste, dead, squares float64
	for _, left := range f.left[:live] {
		if left == Whole {
			ints++
		} else {
			partial++
			partIdle += left
		}
		known := &f.leftovers.byDeviceLeft[left]
		for table := range lost {
			lost[table] += known.lost[table]
		}
		leastWaste += known.leastWaste
		dead += known.dead
		squares += known.square
	}
	for table, sum := range lost {
		out[fTable+table] = float32(sum)
	}
	idle := ints*Whole + partIdle
	out[fLeastWaste], out[fDead], out[fLeftSquares] = float32(leastWaste), float32(dead), float32(squares)
	out[fIdle], out[fPartIdle] = float32(float64(idle)*gpu), float32(float64(partIdle)*gpu)
	out[fWhole], out[fPart], out[fAllWhole] = float32(ints), float32(partial), 0
	if ints == int64(count) {
		out[fAllWhole] = 1
	}
	return idle
}

// countDevices counts which devices are enough for each milli that typical pods request.
func (f *featureEncoder) countDevices(live int) {
	for v := range f.usable {
		f.usable[v], f.fitting[v] = usable{}, 0
	}
	for _, left := range f.left[:live] {
		for v, count := range f.leftovers.byDeviceLeft[left].counts {
			f.fitting[v] += count
			if count > 0 {
				f.usable[v].enough++
			} else {
				f.usable[v].few += left
			}
		}
	}
}

// encodeCauses writes fragmentation by cause, and returns the sum, in milli.
func (f *featureEncoder) encodeCauses(kind gpuType, idle, cpu int64, out *row) float64 {
	sums := fragmented(f.profile, f.usable, cpu, idle, kind, difference{})
	total := sums.total()
	out[fFragmented] = float32(total * gpu)
	out[fLackBoth] = float32(sums[0] * gpu)
	out[fLackGPU] = float32(sums[1] * gpu)
	out[fLackCPU] = float32(sums[2] * gpu)
	out[fCPUPodLacks] = float32(sums[4] * gpu)
	out[fNoAccess] = float32(sums[5] * gpu)
	return total
}

// encodeGroups is which groups of typical pods fit, and how much of the GPUs they could use.
func (f *featureEncoder) encodeGroups(kind gpuType, cpu int64, out *row) {
	accepts := f.profile.accepts[kind]
	for g := range f.leftovers.groups {
		fit, gpus := 0.0, 0.0
		for _, each := range f.leftovers.groups[g] {
			pod := &f.profile.pods[each.pod]
			if cpu < pod.cpu {
				continue
			}
			most := float64(cpu) * each.podsPerCPU
			if g == 0 {
				fit += pod.share
				gpus += float64(pod.share * min(most, enoughCPUPods))
				continue
			}
			v := pod.value
			if len(f.usable) > 0 && accepts[each.pod] && f.usable[v].enough >= pod.count {
				fit += pod.share
				could := min(float64(f.fitting[v]), most*float64(pod.count))
				gpus += float64(pod.share * could * float64(f.profile.milli[v]) * gpu)
			}
		}
		out[fFit+g], out[fUsable+g] = float32(fit), float32(gpus)
	}
}

func (f *featureEncoder) encodeCPU(idle, cpu int64, out *row) {
	gpus, left := float64(idle)*gpu, float64(cpu)/f.leftovers.cpuUnit
	ints, parts := out[fWhole], out[fPartIdle] // in single precision, as they are kept
	beyond := (float64(cpu) - float64(float64(idle)*f.leftovers.cpuPerGPU)) / f.leftovers.cpuUnit
	short, spare := max(0.0, -beyond), max(0.0, beyond)
	out[fCPULeft], out[fCPUShort], out[fCPUSpare] = float32(left), float32(short), float32(spare)
	out[fProducts] = float32(gpus * gpus * 0.2)
	out[fProducts+1] = float32(float64(ints*ints) * 0.2)
	out[fProducts+2] = float32(left * left * 0.2)
	out[fProducts+3] = float32(gpus * left * 0.2)
	out[fProducts+4] = float32(float64(ints) * left * 0.2)
	out[fProducts+5] = float32(short * short)
	out[fProducts+6] = float32(spare * spare)
	out[fProducts+7] = float32(float64(parts) * left)
	out[fProducts+8] = float32(math.Sqrt(float64(parts)))
}

// cacheSize is of how many states a worker keeps the features, a power of two: 7 MiB.
const cacheSize = 1 << 15

// cachedState is what is cached of a state.
type cachedState struct {
	key        uint64
	fragmented float64 // GPU milli
	row        row
}

// stateCache computes the features of nodes' states and keeps them by a hash, since few states occur again and again. Of
// states with the same entry, the last one is kept.
type stateCache struct {
	*featureEncoder
	kept []cachedState
	kind gpuType // of the devices of the node that was looked at last
	key  uint64  // the hash of what is fixed about it, and of its devices as they are
}

func newStateCache(profile *Profile, leftovers *leftovers) *stateCache {
	return &stateCache{featureEncoder: newFeatureEncoder(profile, leftovers), kept: make([]cachedState, cacheSize)}
}

// look returns what is cached of the node as it is; a copy, since another state may take its place.
func (s *stateCache) look(node *Node) cachedState {
	s.kind = s.profile.gpuType(node)
	cpu := s.leftovers.usableCPU(node.CPU.Allocatable, node.Memory.Allocatable)
	s.key = mixHash(mixHash(uint64(s.kind)*goldenRatio+uint64(len(node.GPUFree)))*goldenRatio + uint64(cpu))
	for _, left := range node.GPUFree {
		s.key += deviceKey(left)
	}
	return *s.find(node, s.key, s.leftovers.usableCPU(node.CPU.Free, node.Memory.Free), 0, 0)
}

// with returns what is cached of the node that was looked at last with the pod on the devices of the bit mask. It is valid
// until another state is looked at.
func (s *stateCache) with(node *Node, pod *Pod, devices uint64) *cachedState {
	key := s.key
	for d, left := range node.GPUFree {
		if devices>>d&1 != 0 {
			key += deviceKey(left-pod.GPUMilli) - deviceKey(left)
		}
	}
	cpu := s.leftovers.usableCPU(node.CPU.Free-pod.CPU, node.Memory.Free-pod.Memory)
	return s.find(node, key, cpu, devices, pod.GPUMilli)
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
