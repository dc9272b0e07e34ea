package policy

import (
	"fmt"
	"slices"
)

var (
	networks       = []string{"linear", "mlp", "deepsets"}
	normalisations = []string{"none", "layer", "batch"} // of which the last is folded into the weights
)

// readNetwork reads the weights of a file. It returns a constructor of scorers, and whether these read one node at a time.
func readNetwork(all *tensors, card *Card, profile *Profile, seen *leftovers) (create func() scorer, pointwise bool, err error) {
	if card.Network == rule {
		create, err := readRule(all, card, profile)
		return create, true, err
	}
	if err := checkNetwork(all.file, card); err != nil {
		return nil, false, err
	}
	gpu := card.View == "gpu"
	switch {
	case gpu && card.Network == "linear" && !all.has("head.weight"):
		linear, err := readLinear(all)
		return func() scorer { return linear.scorer(profile, seen) }, true, err
	case gpu && card.Network == "mlp" && all.inputs() == nodeFeatures+podFeatures:
		linear, err := readMLP(all, card)
		return func() scorer { return linear.scorer(profile, seen) }, true, err
	default:
		linear, err := readContextNetwork(all, card)
		return func() scorer { return linear.scorer(profile, seen) }, false, err
	}
}

// rule is the network of a file without weights: a heuristic that was the best for the profile of the file.
const rule = "rule"

// readRule returns a constructor of scorers for the heuristic that a file names.
func readRule(all *tensors, card *Card, profile *Profile) (func() scorer, error) {
	if len(card.Members) == 1 {
		if card.Members[0] == FGD {
			return newFGD(profile), nil
		}
		if score, ok := heuristics[card.Members[0]]; ok {
			return func() scorer { return heuristic(score) }, nil
		}
	}
	return nil, &FileError{all.file, "card", "members", fmt.Sprintf("is %v; expected one heuristic", card.Members)}
}

// checkNetwork checks that there is such a network.
func checkNetwork(file string, card *Card) error {
	if card.Network == "portfolio" {
		problem := "is \"portfolio\", of which one member must be chosen for a cluster: " + prepareCommand
		return &FileError{file, "card", "network", problem}
	}
	if !slices.Contains(networks, card.Network) {
		return &FileError{file, "card", "network", fmt.Sprintf("is %q; expected linear, mlp or deepsets here", card.Network)}
	}
	if !slices.Contains(normalisations, card.Normalisation) {
		problem := fmt.Sprintf("is %q; expected none, layer or batch", card.Normalisation)
		return &FileError{file, "card", "normalisation", problem}
	}
	if card.Network != "linear" && (len(card.Hidden) == 0 || slices.Min(card.Hidden) < 1) {
		problem := fmt.Sprintf("is %v; the network %q has one layer or more", card.Hidden, card.Network)
		return &FileError{file, "card", "hidden", problem}
	}
	return nil
}

// readLinear reads the linear part of a linear policy, by kind of pod.
func readLinear(all *tensors) (*linearPolicy, error) {
	weights, err := all.weights("weights", kinds, nodeFeatures)
	if err != nil {
		return nil, err
	}
	result := &linearPolicy{}
	for kind := range result.linear {
		result.linear[kind] = readColumn(weights[kind*nodeFeatures:])
	}
	if all.has("rules") {
		points, err := all.weights("rules", kinds, rules)
		if err != nil {
			return nil, err
		}
		for kind := range result.rules {
			copy(result.rules[kind][:], points[kind*rules:])
		}
	}
	return result, nil
}

// readMLP reads a policy with a network that does not see the cluster; without a linear part, that is zero.
func readMLP(all *tensors, card *Card) (*linearPolicy, error) {
	if card.Normalisation != "none" {
		problem := fmt.Sprintf("is %q; a network without features of the cluster has none", card.Normalisation)
		return nil, &FileError{all.file, "card", "normalisation", problem}
	}
	linear := &linearPolicy{}
	if all.has("weights") {
		var err error
		if linear, err = readLinear(all); err != nil {
			return nil, err
		}
	}
	layers, err := readScore(all, "layers", nodeFeatures+podFeatures, card)
	if err != nil {
		return nil, err
	}
	linear.network = newNetwork(layers)
	return linear, nil
}

// readContextNetwork reads a network that sees the cluster.
func readContextNetwork(all *tensors, card *Card) (*contextNetwork, error) {
	inputs, result := views[card.View].node+sharedFeatures, &contextNetwork{view: card.View}
	switch card.Network {
	case "linear":
		return result, readHeads(all, inputs, result)
	case "mlp":
		layers, err := readScore(all, "layers", inputs, card)
		result.byKind = [kinds]stack{layers, layers, layers, layers}
		return result, err
	default:
		var err error
		if result.phi, err = readStack(all, "phi", inputs, card); err != nil {
			return nil, err
		}
		layers, err := readScore(all, "rho", 2*card.Hidden[len(card.Hidden)-1], card)
		result.byKind = [kinds]stack{layers, layers, layers, layers}
		return result, err
	}
}

// readHeads reads a linear network: a head for each kind of pod.
func readHeads(all *tensors, inputs int, result *contextNetwork) error {
	weights, err := all.weights("head.weight", kinds, inputs)
	if err != nil {
		return err
	}
	bias, err := all.weights("head.bias", kinds)
	if err != nil {
		return err
	}
	for kind := range result.byKind {
		row := weights[kind*inputs : (kind+1)*inputs]
		result.byKind[kind] = stack{{weight: byInput(row, 1, inputs), bias: bias[kind : kind+1], score: true}}
	}
	return nil
}

// readScore reads a group of layers and the head that makes a score.
func readScore(all *tensors, group string, inputs int, card *Card) (stack, error) {
	layers, err := readStack(all, group, inputs, card)
	if err != nil {
		return nil, err
	}
	head, err := readLayer(all, "head", len(layers[len(layers)-1].bias), 1, false)
	head.score = true
	return append(layers, head), err
}

// readStack reads the layers of a group: "layers.0", "layers.1" and so on.
func readStack(all *tensors, group string, inputs int, card *Card) (stack, error) {
	var layers stack
	for i, width := range card.Hidden {
		layer, err := readLayer(all, fmt.Sprintf("%s.%d", group, i), inputs, width, card.Normalisation == "layer")
		if err != nil {
			return nil, err
		}
		layers, inputs = append(layers, layer), width
	}
	return layers, nil
}

func readLayer(all *tensors, name string, inputs, outputs int, normalised bool) (layer, error) {
	weights, err := all.weights(name+".weight", outputs, inputs)
	if err != nil {
		return layer{}, err
	}
	bias, err := all.weights(name+".bias", outputs)
	if err != nil || !normalised {
		return layer{weight: byInput(weights, outputs, inputs), bias: bias}, err
	}
	scale, err := all.weights(name+".norm.weight", outputs)
	if err != nil {
		return layer{}, err
	}
	shift, err := all.weights(name+".norm.bias", outputs)
	return layer{weight: byInput(weights, outputs, inputs), bias: bias, scale: scale, shift: shift}, err
}

// byInput returns [inputs][outputs] of weights that lie as [outputs][inputs].
func byInput(weights []float64, outputs, inputs int) [][]float64 {
	result := make([][]float64, inputs)
	for i := range result {
		result[i] = make([]float64, outputs)
		for j := range result[i] {
			result[i][j] = weights[j*inputs+i]
		}
	}
	return result
}

// inputs returns the number of inputs of the first layer. With the cluster's features among them, every placement
// changes every score.
func (t *tensors) inputs() int {
	first, ok := t.byName["layers.0.weight"]
	if !ok || len(first.Shape) != 2 {
		return -1
	}
	return first.Shape[1]
}

func (t *tensors) has(name string) bool {
	_, ok := t.byName[name]
	return ok
}
