package policy

import "math"

// Features of a node's state in the view gpu, in the order of policies/gpu_features.py, which says what they are.
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

// describer works out features. It has room for one state at a time.
type describer struct {
	mix     *Mix
	outlook *outlook
	left    [MaxDevices]int64 // milli left of the devices that have any, the most first
	rest    [MaxDevices]int64 // the same in a sequence
	usable  []usable          // by Mix.milli
	fitting []int64           // by Mix.milli, pods that fit
}

func newDescriber(mix *Mix, outlook *outlook) *describer {
	return &describer{mix: mix, outlook: outlook, usable: make([]usable, len(mix.milli)), fitting: make([]int64, len(mix.milli))}
}

// describe works out the features of a node if it had so much milli-CPU left, and the devices of the bit mask so many
// milli less. It returns the fragmented GPU milli unrounded: truncated scores hang on its last bits.
func (d *describer) describe(node *Node, kind gpuType, cpu int64, devices uint64, milli int64, out *row) float64 {
	live := d.layOut(node, devices, milli)
	idle := d.describeDevices(live, len(node.GPUFree), out)
	out[fUntouched] = 0
	if cpu == d.outlook.usableCPU(node.CPU.Allocatable, node.Memory.Allocatable) {
		out[fUntouched] = out[fAllWhole]
	}
	d.countDevices(live)
	total := d.describeCauses(kind, idle, cpu, out)
	d.describeGroups(kind, cpu, out)
	out[fInsisted] = float32(d.outlook.demand[kind][0] * float64(idle) * gpu)
	out[fAccepted] = float32(d.outlook.demand[kind][1] * float64(idle) * gpu)
	d.describeCPU(idle, cpu, out)
	d.fill(live, idle, kind, cpu, out)
	return total
}

// layOut sorts what would be left of the devices, and counts those that have anything left.
func (d *describer) layOut(node *Node, devices uint64, milli int64) int {
	live := 0
	for i, amount := range node.GPUFree {
		if devices>>i&1 != 0 {
			amount -= milli
		}
		if amount > 0 {
			at := live
			for at > 0 && d.left[at-1] < amount {
				d.left[at] = d.left[at-1]
				at--
			}
			d.left[at] = amount
			live++
		}
	}
	return live
}

// describeDevices is what sums over devices say; it returns the GPU milli left on all of them.
func (d *describer) describeDevices(live, count int, out *row) int64 {
	var whole, partial, partIdle int64
	var lost [tables]float64
	var leastWaste, dead, squares float64
	for _, left := range d.left[:live] {
		if left == Whole {
			whole++
		} else {
			partial++
			partIdle += left
		}
		known := &d.outlook.byLeft[left]
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
	idle := whole*Whole + partIdle
	out[fLeastWaste], out[fDead], out[fLeftSquares] = float32(leastWaste), float32(dead), float32(squares)
	out[fIdle], out[fPartIdle] = float32(float64(idle)*gpu), float32(float64(partIdle)*gpu)
	out[fWhole], out[fPart], out[fAllWhole] = float32(whole), float32(partial), 0
	if whole == int64(count) {
		out[fAllWhole] = 1
	}
	return idle
}

// countDevices counts which devices are enough for each milli that typical pods ask for.
func (d *describer) countDevices(live int) {
	for v := range d.usable {
		d.usable[v], d.fitting[v] = usable{}, 0
	}
	for _, left := range d.left[:live] {
		for v, count := range d.outlook.byLeft[left].counts {
			d.fitting[v] += count
			if count > 0 {
				d.usable[v].enough++
			} else {
				d.usable[v].few += left
			}
		}
	}
}

// describeCauses is fragmentation by cause; it returns the sum, in milli.
func (d *describer) describeCauses(kind gpuType, idle, cpu int64, out *row) float64 {
	sums := fragmented(d.mix, d.usable, cpu, idle, kind, difference{})
	total := sums.total()
	out[fFragmented] = float32(total * gpu)
	out[fLackBoth] = float32(sums[0] * gpu)
	out[fLackGPU] = float32(sums[1] * gpu)
	out[fLackCPU] = float32(sums[2] * gpu)
	out[fCPUPodLacks] = float32(sums[4] * gpu)
	out[fNoAccess] = float32(sums[5] * gpu)
	return total
}

// describeGroups is which groups of typical pods fit, and how much of the GPUs they could use.
func (d *describer) describeGroups(kind gpuType, cpu int64, out *row) {
	accepts := d.mix.accepts[kind]
	for g := range d.outlook.groups {
		fit, gpus := 0.0, 0.0
		for _, each := range d.outlook.groups[g] {
			pod := &d.mix.pods[each.pod]
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
			if len(d.usable) > 0 && accepts[each.pod] && d.usable[v].enough >= pod.count {
				fit += pod.share
				could := min(float64(d.fitting[v]), most*float64(pod.count))
				gpus += float64(pod.share * could * float64(d.mix.milli[v]) * gpu)
			}
		}
		out[fFit+g], out[fUsable+g] = float32(fit), float32(gpus)
	}
}

func (d *describer) describeCPU(idle, cpu int64, out *row) {
	gpus, left := float64(idle)*gpu, float64(cpu)/d.outlook.cpuUnit
	whole, parts := out[fWhole], out[fPartIdle] // in single precision, as they are kept
	beyond := (float64(cpu) - float64(float64(idle)*d.outlook.cpuPerGPU)) / d.outlook.cpuUnit
	short, spare := max(0.0, -beyond), max(0.0, beyond)
	out[fCPULeft], out[fCPUShort], out[fCPUSpare] = float32(left), float32(short), float32(spare)
	out[fProducts] = float32(gpus * gpus * 0.2)
	out[fProducts+1] = float32(float64(whole*whole) * 0.2)
	out[fProducts+2] = float32(left * left * 0.2)
	out[fProducts+3] = float32(gpus * left * 0.2)
	out[fProducts+4] = float32(float64(whole) * left * 0.2)
	out[fProducts+5] = float32(short * short)
	out[fProducts+6] = float32(spare * spare)
	out[fProducts+7] = float32(float64(parts) * left)
	out[fProducts+8] = float32(math.Sqrt(float64(parts)))
}
