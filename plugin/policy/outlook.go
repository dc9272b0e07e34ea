package policy

const (
	groups    = 5 // of typical pods: no GPU, below and from half a device, one device, several
	tables    = 5 // of what will be lost of a device, by how much is left of it
	sequences = 6 // of typical pods that are played on a node
	amounts   = Whole + 1

	maxSequence = 1024 // pods of a sequence; a score is to be there in microseconds

	usualCPUUnit = 12_000.0 // milli-CPU, where no typical pod asks for a GPU

	never = 1 << 60 // more CPU than there is: what a pod asks for that may not run on a model
)

// step is a pod of a sequence: milli-CPU, and milli of each of so many devices.
type step struct{ cpu, devices, milli int64 }

// ofLeft is what is known of a device by how much is left of it.
type ofLeft struct {
	lost       [tables]float64 // GPUs that will be lost
	leastWaste float64         // GPUs that the largest typical pod that fits would leave
	dead       float64         // GPUs left if no typical pod fits, else 0
	square     float64         // of the GPUs left
	counts     []int64         // how many pods of each Mix.milli it takes
}

// outlook is what the mix says about leftovers of GPUs, laid out for looking it up. Source: policies/outlook_tables.py.
type outlook struct {
	byLeft    []ofLeft          // [Whole + 1] by what is left of a device
	groups    [groups][]groupee // typical pods by group
	sequences [][][]step        // by GPU type, the sequences; the second half of them is GPU pods
	demand    [][2]float64      // by GPU type: shares of the GPU demand that insists on its model, and that accepts it
	cpuPerGPU float64           // milli-CPU that the mix asks for with each GPU milli
	perByte   float64           // milli-CPU that it asks for with each byte of memory; 0: it asks for no memory
	cpuUnit   float64           // milli-CPU that it asks for with a whole GPU
	smallest  int64             // the least milli of a device that a typical pod asks for
	leastCPU  int64             // the least milli-CPU
}

// groupee is a typical pod in a group.
type groupee struct {
	pod        int     // in Mix.pods
	podsPerCPU float64 // pods for each free milli-CPU
}

// readOutlook reads the outlook of a mix.
func readOutlook(reader *bakedReader, mix *Mix) (*outlook, error) {
	pods, models, values := len(mix.pods), len(mix.names), len(mix.milli)
	lost := reader.real("outlook.tables", tables, amounts)
	counts := reader.whole("outlook.counts", 0, Whole, values, amounts)
	group := reader.whole("outlook.group", 0, groups-1, pods)
	podsPerCPU := reader.real("outlook.pods_per_cpu", pods)
	order := reader.whole("outlook.sequences", 0, int64(max(0, pods-1)), sequences, anyLength)
	demand := reader.real("outlook.model", models+1, 2)
	ratios := reader.real("outlook.ratios", 2)
	smallest := reader.whole("outlook.smallest", 0, Whole, 1)
	if reader.err != nil {
		return nil, reader.err
	}
	if len(order)/sequences > maxSequence {
		return nil, reader.wrong("outlook.sequences", "has sequences of more than %d pods", maxSequence)
	}
	if pods == 0 && len(order) > 0 {
		return nil, reader.wrong("outlook.sequences", "is not empty, but there are no typical pods")
	}
	found := &outlook{cpuPerGPU: ratios[0], perByte: ratios[1], smallest: smallest[0], leastCPU: never}
	if found.cpuUnit = Whole * found.cpuPerGPU; found.cpuUnit == 0 {
		found.cpuUnit = usualCPUUnit
	}
	for i, pod := range mix.pods {
		found.leastCPU = min(found.leastCPU, pod.cpu)
		found.groups[group[i]] = append(found.groups[group[i]], groupee{i, podsPerCPU[i]})
	}
	found.byLeft = byLeft(mix, lost, counts, found.smallest)
	for kind := range mix.accepts {
		if len(mix.resources) > 0 {
			found.demand = append(found.demand, mix.demand(kind))
		} else {
			found.demand = append(found.demand, [2]float64{demand[2*kind], demand[2*kind+1]})
		}
		found.sequences = append(found.sequences, steps(mix, order, kind))
	}
	return found, nil
}

// usableCPU is the milli-CPU that pods can still use: less than is free where memory runs out first, at the ratio of CPU to
// memory of the mix.
func (o *outlook) usableCPU(cpu, memory int64) int64 {
	if o.perByte <= 0 {
		return cpu
	}
	return min(cpu, int64(float64(memory)*o.perByte))
}

func byLeft(mix *Mix, lost []float64, counts []int64, smallest int64) []ofLeft {
	found := make([]ofLeft, amounts)
	for left := range found {
		each := &found[left]
		for table := range each.lost {
			each.lost[table] = lost[table*amounts+left]
		}
		var fitting int64
		each.counts = make([]int64, len(mix.milli))
		for v, milli := range mix.milli {
			if milli <= int64(left) {
				fitting = milli
			}
			each.counts[v] = counts[v*amounts+left]
		}
		each.leastWaste = float64(int64(left)-fitting) / Whole
		if int64(left) < smallest {
			each.dead = float64(left) / Whole
		}
		each.square = float64(left) / Whole * (float64(left) / Whole)
	}
	return found
}

// demand is the share of the GPU demand that insists on the model of a type of devices, divided among the models that it
// accepts, and the share that accepts the type. Source: policies/outlook.py.
func (m *Mix) demand(kind gpuType) [2]float64 {
	var found [2]float64
	total, named, everyName := 0.0, len(m.resources), 1<<len(m.resources)-1
	for i := range m.pods {
		total += m.milliOf(i)
	}
	for i := range m.pods {
		if !m.accepts[kind][i] || total == 0 {
			continue
		}
		share := m.milliOf(i) / total
		found[1] += share
		models, last := 0, len(m.names)
		for model := range last {
			if m.accepts[model<<named|everyName][i] {
				models++
			}
		}
		if !m.accepts[last<<named|everyName][i] {
			found[0] += share / float64(models)
		}
	}
	return found
}

// milliOf is the GPU milli that a typical pod asks for, times its share.
func (m *Mix) milliOf(i int) float64 {
	pod := &m.pods[i]
	if pod.count == 0 {
		return 0
	}
	return pod.share * float64(m.milli[pod.value]) * float64(pod.count)
}

// steps are the sequences as a node with devices of a type sees them.
func steps(mix *Mix, order []int64, kind gpuType) [][]step {
	found, length := make([][]step, sequences), len(order)/sequences
	for s := range found {
		found[s] = make([]step, length)
		for j := range found[s] {
			t := order[s*length+j]
			pod := mix.pods[t]
			each := step{cpu: pod.cpu, devices: pod.count}
			if pod.count > 0 {
				each.milli = mix.milli[pod.value]
				if !mix.accepts[kind][t] {
					each.cpu = never
				}
			}
			found[s][j] = each
		}
	}
	return found
}
