package policy

import (
	"fmt"
	"slices"
)

const (
	mixVersion = 2
	maxCPU     = 1 << 40 // milli-CPU of a typical pod
	maxCount   = 64      // devices of a typical pod
	maxModels  = 1024    // GPU models, each of which has tables of its own
	maxTypes   = 8192    // GPU types, likewise
)

// typicalPod is a kind of pod in the mix.
type typicalPod struct {
	cpu   int64   // milli-CPU
	count int64   // GPU devices
	value int     // which of Mix.milli it asks for of each device; 0 if it wants none
	share float64 // of the mix; the shares sum to 1

	resource int // which of Mix.resources it asks for; -1: any
}

// gpuType is the number of a type of devices: that of their model, and which of Mix.resources pods may ask for, a bit
// each. Where no typical pod asks for a name, it is the number of the model.
type gpuType = int

// Mix says which pods are typical of a workload, and how often they come: all that a policy knows of what is to come.
type Mix struct {
	pods    []typicalPod
	milli   []int64        // the distinct milli of each device that typical pods ask for, ascending
	accepts [][]bool       // by GPU type, then by typical pod: whether it may run there; the last model is "none known"
	models  map[string]int // GPU models by name
	names   []string       // the same in order

	resources []string // names of GPUs that typical pods ask for
}

// gpuType is the type of a node's devices.
func (m *Mix) gpuType(node *Node) gpuType {
	found := gpuType(m.model(node)) << len(m.resources)
	for i, name := range m.resources {
		if node.offers(name) {
			found |= 1 << i
		}
	}
	return found
}

// model is the number of a node's GPU model; one that the mix does not know is as none.
func (m *Mix) model(node *Node) int {
	if model, ok := m.models[node.GPUModel]; ok {
		return model
	}
	return len(m.names)
}

// readMix reads the mix of a card from the tensors of its file.
func readMix(reader *bakedReader, card *MixCard) (*Mix, error) {
	if card.Version != mixVersion {
		problem := fmt.Sprintf("is %d, but this version of steersman reads %d: prepare the policy again", card.Version, mixVersion)
		return nil, &FileError{reader.file, "card", "mix.version", problem}
	}
	if card.TypicalPods < 0 {
		problem := fmt.Sprintf("is %d; 0 or more is right", card.TypicalPods)
		return nil, &FileError{reader.file, "card", "mix.typical_pods", problem}
	}
	if len(card.Models) > maxModels {
		problem := fmt.Sprintf("has %d GPU models; at most %d are right", len(card.Models), maxModels)
		return nil, &FileError{reader.file, "card", "mix.models", problem}
	}
	pods, models := card.TypicalPods, len(card.Models)
	milli := reader.whole("mix.milli", 1, Whole, anyLength)
	for i := 1; i < len(milli); i++ {
		if milli[i] <= milli[i-1] {
			return nil, reader.wrong("mix.milli", "is not in increasing order")
		}
	}
	accepts := reader.whole("mix.accepts", 0, 1, pods, models+1)
	count := reader.whole("mix.gpu_count", 0, maxCount, pods)
	for _, each := range count {
		if each > 0 && len(milli) == 0 {
			return nil, reader.wrong("mix.milli", "is empty, but typical pods ask for GPUs")
		}
	}
	cpu := reader.whole("mix.cpu", 0, maxCPU, pods)
	value := reader.whole("mix.value", 0, int64(max(0, len(milli)-1)), pods)
	share := reader.real("mix.share", pods)
	if reader.err != nil {
		return nil, reader.err
	}
	mix := &Mix{pods: make([]typicalPod, pods), milli: milli, models: map[string]int{}, names: card.Models}
	for i := range mix.pods {
		mix.pods[i] = typicalPod{cpu[i], count[i], int(value[i]), share[i], -1}
	}
	if err := mix.nameGPUs(reader, card); err != nil {
		return nil, err
	}
	for i, name := range card.Models {
		mix.models[name] = i
	}
	named := len(mix.resources)
	mix.accepts = make([][]bool, (models+1)<<named)
	for each := range mix.accepts {
		row := make([]bool, pods)
		for i := range row {
			resource := mix.pods[i].resource
			row[i] = accepts[i*(models+1)+each>>named] != 0 && (resource < 0 || each>>resource&1 != 0)
		}
		mix.accepts[each] = row
	}
	return mix, nil
}

// nameGPUs takes in the names of GPUs that typical pods ask for.
func (m *Mix) nameGPUs(reader *bakedReader, card *MixCard) error {
	if len(card.Resources) == 0 {
		return nil
	}
	if len(card.Resources) != len(m.pods) {
		problem := fmt.Sprintf("has %d names for %d typical pods; one each is right, or none", len(card.Resources), len(m.pods))
		return &FileError{reader.file, "card", "mix.resources", problem}
	}
	for i, name := range card.Resources {
		if name == "" {
			continue
		}
		place := slices.Index(m.resources, name)
		if place < 0 {
			place = len(m.resources)
			m.resources = append(m.resources, name)
		}
		if (len(m.names)+1)<<min(len(m.resources), 30) > maxTypes {
			problem := fmt.Sprintf("names too many GPUs beside %d models; at most %d types are right", len(m.names), maxTypes)
			return &FileError{reader.file, "card", "mix.resources", problem}
		}
		m.pods[i].resource = place
	}
	return nil
}
