package policy

import (
	"fmt"
	"slices"
)

// rule is the network of a file without weights: a heuristic that was the best for the profile of the file.
const rule = "rule"

// readNetwork reads the weights of a file. It returns a constructor of scorers, and whether these read one node at a
// time.
func readNetwork(r *reader, card *Card, profile *Profile, seen *leftovers) (create func() scorer, pointwise bool) {
	if card.Network == rule {
		return readRule(r, card, profile), true
	}
	checkNetwork(r, card)
	gpu := card.View == "gpu"
	switch {
	case gpu && card.Network == "linear" && !r.has("head.weight"):
		linear := readLinear(r)
		return func() scorer { return linear.scorer(profile, seen) }, true
	case gpu && card.Network == "mlp" && readsOneNode(r):
		linear := readMLP(r, card)
		return func() scorer { return linear.scorer(profile, seen) }, true
	default:
		network := readContextNetwork(r, card)
		return func() scorer { return network.scorer(profile, seen) }, false
	}
}

func readRule(r *reader, card *Card, profile *Profile) func() scorer {
	if len(card.Members) == 1 {
		if card.Members[0] == FGD {
			return newFGD(profile)
		}
		for _, each := range heuristics {
			if each.name == card.Members[0] {
				return each.scorer
			}
		}
	}
	r.refuseCard("members", "is %v; expected one heuristic", card.Members)
	return nil
}

func checkNetwork(r *reader, card *Card) {
	switch {
	case card.Network == "portfolio":
		r.refuseCard("network", "is \"portfolio\", of which one member must be chosen for a cluster: %s", prepareCommand)
	case !slices.Contains([]string{"linear", "mlp", "deepsets"}, card.Network):
		r.refuseCard("network", "is %q; expected linear, mlp or deepsets here", card.Network)
	case !slices.Contains([]string{"none", "layer", "batch"}, card.Normalisation): // batch is folded into the weights
		r.refuseCard("normalisation", "is %q; expected none, layer or batch", card.Normalisation)
	case card.Network != "linear" && (len(card.Hidden) == 0 || slices.Min(card.Hidden) < 1):
		r.refuseCard("hidden", "is %v; the network %q has one layer or more", card.Hidden, card.Network)
	}
}

// readsOneNode reports whether the first layer of a network does without features of the cluster, with which every
// placement changes every score.
func readsOneNode(r *reader) bool {
	shape := r.tensors["layers.0.weight"].Shape
	return len(shape) == 2 && shape[1] == nodeFeatures+podFeatures
}

// readLinear reads the linear part of a policy, by kind of pod.
func readLinear(r *reader) *linearPolicy {
	result := &linearPolicy{}
	weights := r.floats("weights", kinds, nodeFeatures)
	points := make([]float64, kinds*len(heuristics))
	if r.has("rules") {
		points = r.floats("rules", kinds, len(heuristics))
	}
	if r.err == nil {
		for kind := range kinds {
			result.linear[kind] = readColumn(weights[kind*nodeFeatures:])
			copy(result.rules[kind][:], points[kind*len(heuristics):])
		}
	}
	return result
}

// readMLP reads a policy with a network that does not see the cluster; without a linear part, that is zero.
func readMLP(r *reader, card *Card) *linearPolicy {
	if card.Normalisation != "none" {
		r.refuseCard("normalisation", "is %q; a network without features of the cluster has none", card.Normalisation)
	}
	linear := &linearPolicy{}
	if r.has("weights") {
		linear = readLinear(r)
	}
	if layers := readScore(r, "layers", nodeFeatures+podFeatures, card); r.err == nil {
		linear.network = newNetwork(layers)
	}
	return linear
}

func readContextNetwork(r *reader, card *Card) *contextNetwork {
	inputs, result := views[card.View].node+sharedFeatures, &contextNetwork{view: card.View}
	if r.err != nil {
		return result
	}
	switch card.Network {
	case "linear":
		weights, bias := r.floats("head.weight", kinds, inputs), r.floats("head.bias", kinds)
		if r.err == nil {
			for kind := range kinds {
				row := weights[kind*inputs : (kind+1)*inputs]
				result.byKind[kind] = stack{{weight: byInput(row, 1, inputs), bias: bias[kind : kind+1], score: true}}
			}
		}
		return result
	case "deepsets":
		result.phi = readStack(r, "phi", inputs, card)
		layers := readScore(r, "rho", 2*card.Hidden[len(card.Hidden)-1], card)
		result.byKind = [kinds]stack{layers, layers, layers, layers}
	default:
		layers := readScore(r, "layers", inputs, card)
		result.byKind = [kinds]stack{layers, layers, layers, layers}
	}
	return result
}

// readScore reads a group of layers and the head that makes a score.
func readScore(r *reader, group string, inputs int, card *Card) stack {
	layers := readStack(r, group, inputs, card)
	if r.err != nil {
		return nil
	}
	head := readLayer(r, "head", card.Hidden[len(card.Hidden)-1], 1, false)
	head.score = true
	return append(layers, head)
}

// readStack reads the layers of a group: "layers.0", "layers.1" and so on.
func readStack(r *reader, group string, inputs int, card *Card) stack {
	var layers stack
	for i, width := range card.Hidden {
		layers = append(layers, readLayer(r, fmt.Sprintf("%s.%d", group, i), inputs, width, card.Normalisation == "layer"))
		inputs = width
	}
	return layers
}

func readLayer(r *reader, name string, inputs, outputs int, normalised bool) layer {
	weights := r.floats(name+".weight", outputs, inputs)
	result := layer{bias: r.floats(name+".bias", outputs)}
	if normalised {
		result.scale, result.shift = r.floats(name+".norm.weight", outputs), r.floats(name+".norm.bias", outputs)
	}
	if r.err == nil {
		result.weight = byInput(weights, outputs, inputs)
	}
	return result
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
