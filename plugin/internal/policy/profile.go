package policy

import "slices"

const (
	profileVersion = 3
	maxCPU         = 1 << 40 // milli-CPU of a typical pod
	maxCount       = 64      // devices of a typical pod
	maxModels      = 1024    // GPU models, each of which has tables of its own
	maxTypes       = 8192    // GPU types, likewise
)

type typicalPod struct {
	cpu   int64   // milli-CPU
	count int64   // GPU devices
	value int     // which of Profile.milli it requests of each device; 0 if it requests none
	share float64 // of the profile; the shares sum to 1

	resource int // which of Profile.resources it requests; -1: any
}

// gpuType is the number of a type of devices: that of their model, and which of Profile.resources pods may request, a
// bit each. Where no typical pod requests a name, it is the number of the model.
type gpuType = int

// Profile says which pods are typical of a workload, and how often they come: all that a policy knows of what is to
// come.
type Profile struct {
	pods    []typicalPod
	milli   []int64        // the distinct milli of each device that typical pods request, ascending
	accepts [][]bool       // by GPU type, then by typical pod: whether it may run there; the last model is "none known"
	models  map[string]int // GPU models by name
	names   []string       // the same in order

	resources []string // names of GPUs that typical pods request
}

// gpuType returns the type of a node's devices; a model that the profile does not know is as none.
func (p *Profile) gpuType(node *Node) gpuType {
	model, ok := p.models[node.GPU.Model]
	if !ok {
		model = len(p.names)
	}
	result := gpuType(model) << len(p.resources)
	for i, name := range p.resources {
		if node.GPU.Offers(name) {
			result |= 1 << i
		}
	}
	return result
}

func readProfile(r *reader, card *ProfileCard) *Profile {
	pods, models := card.TypicalPods, len(card.Models)
	switch {
	case card.Version != profileVersion:
		r.refuseCard("mix.version", "is %d, but this version of steersman reads %d: prepare the policy again",
			card.Version, profileVersion)
	case pods < 0:
		r.refuseCard("mix.typical_pods", "is %d; expected 0 or more", pods)
	case models > maxModels:
		r.refuseCard("mix.models", "has %d GPU models; expected at most %d", models, maxModels)
	}
	milli := r.ints("mix.milli", 1, Whole, anyLength)
	for i := 1; i < len(milli); i++ {
		if milli[i] <= milli[i-1] {
			r.refuseTensor("mix.milli", "is not in increasing order")
		}
	}
	accepts := r.ints("mix.accepts", 0, 1, pods, models+1)
	count := r.ints("mix.gpu_count", 0, maxCount, pods)
	if len(milli) == 0 && slices.ContainsFunc(count, func(each int64) bool { return each > 0 }) {
		r.refuseTensor("mix.milli", "is empty, but typical pods ask for GPUs")
	}
	cpu := r.ints("mix.cpu", 0, maxCPU, pods)
	value := r.ints("mix.value", 0, int64(max(0, len(milli)-1)), pods)
	share := r.floats("mix.share", pods)
	if r.err != nil {
		return nil
	}
	profile := &Profile{pods: make([]typicalPod, pods), milli: milli, models: map[string]int{}, names: card.Models}
	for i := range profile.pods {
		profile.pods[i] = typicalPod{cpu[i], count[i], int(value[i]), share[i], -1}
	}
	if profile.readResources(r, card); r.err != nil {
		return nil
	}
	for i, name := range card.Models {
		profile.models[name] = i
	}
	named := len(profile.resources)
	profile.accepts = make([][]bool, (models+1)<<named)
	for each := range profile.accepts {
		row := make([]bool, pods)
		for i := range row {
			resource := profile.pods[i].resource
			row[i] = accepts[i*(models+1)+each>>named] != 0 && (resource < 0 || each>>resource&1 != 0)
		}
		profile.accepts[each] = row
	}
	return profile
}

func (p *Profile) readResources(r *reader, card *ProfileCard) {
	if len(card.Resources) > 0 && len(card.Resources) != len(p.pods) {
		r.refuseCard("mix.resources", "has %d names for %d typical pods; expected one each, or none",
			len(card.Resources), len(p.pods))
		return
	}
	for i, name := range card.Resources {
		if name == "" {
			continue
		}
		place := slices.Index(p.resources, name)
		if place < 0 {
			place = len(p.resources)
			p.resources = append(p.resources, name)
		}
		if (len(p.names)+1)<<min(len(p.resources), 30) > maxTypes {
			r.refuseCard("mix.resources", "names too many GPU types in addition to %d models; expected at most %d in all",
				len(p.names), maxTypes)
			return
		}
		p.pods[i].resource = place
	}
}

const (
	sequences = 6 // of typical pods that are played on a node
	amounts   = Whole + 1

	maxSequence = 1024 // pods of a sequence; a score is to be there in microseconds

	defaultCPUUnit = 12_000.0 // milli-CPU, where no typical pod requests a GPU

	infinite = 1 << 60 // more CPU than there is: what a pod requests that may not run on a model
)

// step is a pod of a sequence: milli-CPU, and milli of each of so many devices.
type step struct{ cpu, devices, milli int64 }

// deviceLeftover is what is known of a device by how much is left of it.
type deviceLeftover struct {
	planned    float64 // GPUs that are expected to be lost in the end
	leastWaste float64 // GPUs that the largest typical pod that fits would leave
	dead       float64 // GPUs left if no typical pod fits, else 0
	square     float64 // of the GPUs left
}

// leftovers is what the profile says about leftovers of GPUs, laid out for looking it up. Source:
// policies/gpu_state/leftover_tables.py.
type leftovers struct {
	byDeviceLeft []deviceLeftover // [Whole + 1] by what is left of a device
	sequences    [][][]step       // by GPU type, the sequences; the second half of them is GPU pods
	cpuPerGPU    float64          // milli-CPU that the profile requests with each GPU milli
	perByte      float64          // milli-CPU that it requests with each byte of memory; 0: it requests no memory
	cpuUnit      float64          // milli-CPU that it requests with a whole GPU
	smallest     int64            // the least milli of a device that a typical pod requests
	leastCPU     int64            // the least milli-CPU
}

func readLeftovers(r *reader, profile *Profile) *leftovers {
	pods := len(profile.pods)
	planned := r.floats("outlook.planned", amounts)
	order := r.ints("outlook.sequences", 0, int64(max(0, pods-1)), sequences, anyLength)
	ratios := r.floats("outlook.ratios", 2)
	smallest := r.ints("outlook.smallest", 0, Whole, 1)
	if len(order)/sequences > maxSequence {
		r.refuseTensor("outlook.sequences", "has sequences of more than %d pods", maxSequence)
	}
	if pods == 0 && len(order) > 0 {
		r.refuseTensor("outlook.sequences", "is not empty, but there are no typical pods")
	}
	if r.err != nil {
		return nil
	}
	result := &leftovers{cpuPerGPU: ratios[0], perByte: ratios[1], smallest: smallest[0], leastCPU: infinite}
	if result.cpuUnit = Whole * result.cpuPerGPU; result.cpuUnit == 0 {
		result.cpuUnit = defaultCPUUnit
	}
	for _, pod := range profile.pods {
		result.leastCPU = min(result.leastCPU, pod.cpu)
	}
	result.byDeviceLeft = byDeviceLeft(profile, planned, result.smallest)
	for kind := range profile.accepts {
		result.sequences = append(result.sequences, steps(profile, order, kind))
	}
	return result
}

// usableCPU returns the milli-CPU that pods can still use: less than is free where memory runs out first, at the ratio
// of CPU to memory of the profile.
func (o *leftovers) usableCPU(cpu, memory int64) int64 {
	if o.perByte <= 0 {
		return cpu
	}
	return min(cpu, int64(float64(memory)*o.perByte))
}

func byDeviceLeft(profile *Profile, planned []float64, smallest int64) []deviceLeftover {
	result := make([]deviceLeftover, amounts)
	for left := range result {
		var fitting int64
		for _, milli := range profile.milli {
			if milli <= int64(left) {
				fitting = milli
			}
		}
		share := float64(left) / Whole
		each := deviceLeftover{planned: planned[left], leastWaste: float64(int64(left)-fitting) / Whole, square: share * share}
		if int64(left) < smallest {
			each.dead = share
		}
		result[left] = each
	}
	return result
}

// steps returns the sequences as a node with devices of a type sees them.
func steps(profile *Profile, order []int64, kind gpuType) [][]step {
	result, length := make([][]step, sequences), len(order)/sequences
	for s := range result {
		result[s] = make([]step, length)
		for j := range result[s] {
			t := order[s*length+j]
			pod := profile.pods[t]
			each := step{cpu: pod.cpu, devices: pod.count}
			if pod.count > 0 {
				each.milli = profile.milli[pod.value]
				if !profile.accepts[kind][t] {
					each.cpu = infinite
				}
			}
			result[s][j] = each
		}
	}
	return result
}

// fillSequences is how much GPU fixed sequences of typical pods would leave of the node, had they only it: sequences of
// all typical pods, and of those with GPUs.
func (f *featureEncoder) fillSequences(live int, idle int64, kind gpuType, cpu int64, out *row) {
	for live > 0 && f.left[live-1] < f.leftovers.smallest {
		live-- // of no use to any pod
	}
	const half = sequences / 2
	for part := range 2 {
		var idles int64
		for s := part * half; s < (part+1)*half; s++ {
			idles += f.placeSequence(f.leftovers.sequences[kind][s], live, idle, cpu, part == 1)
		}
		out[fFilled+part] = float32(float64(idles) * gpu / half)
	}
}

// placeSequence places the pods of a sequence, and returns the GPU milli left at its end.
func (f *featureEncoder) placeSequence(steps []step, live int, idle, cpu int64, gpusAlone bool) int64 {
	rest := f.rest[:live]
	copy(rest, f.left[:live])
	for j := range steps {
		if cpu < f.leftovers.leastCPU || gpusAlone && (live == 0 || rest[0] < f.leftovers.smallest) {
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
	}
	return idle
}

// take takes milli of the fullest device that suffices, as often as wanted; there are enough. What is left stays
// sorted.
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
