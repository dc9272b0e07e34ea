package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"steersman.dev/plugin/internal/files"
	"steersman.dev/plugin/internal/safetensors"
)

const (
	suffix       = ".safetensors"
	maxMebibytes = 64
	maxHidden    = 1000
	schema       = 2

	linearWeights = 24 // of a learned order, and of each hidden unit
	unitWeights   = 10

	cardKey    = "steersman-order"
	weightsKey = "order"
	// policyKey is that of the card of a policy file, and learned the name of an order of weights in it.
	policyKey = "steersman"
	learned   = "learned"
)

// card is what an order file says of itself; src/steersman/orders/registry.py has the same fields.
type card struct {
	Schema     int            `json:"schema"`
	Name       string         `json:"name"`
	Overtaking string         `json:"overtaking"`
	Estimates  string         `json:"estimates"`
	Ageing     *float64       `json:"ageing"`
	Hidden     int            `json:"hidden"`
	Objective  string         `json:"objective"`
	Training   []string       `json:"training"`
	Settings   map[string]any `json:"settings"`
	Gain       float64        `json:"gain"`
	Reference  string         `json:"reference"`
	MadeBy     string         `json:"made_by"`
}

// readFile reads an order file, or the order of a policy file. The error is one line: it is missing, damaged, of
// another version, or of an order that kube-scheduler cannot follow.
func readFile(path string) (*Order, error) {
	order, err := parseFile(path)
	if err != nil {
		return nil, fmt.Errorf("order file %s: %s", safetensors.OneLine(path), strings.Join(strings.Fields(err.Error()), " "))
	}
	return order, nil
}

func parseFile(path string) (*Order, error) {
	content, err := files.Read(path, maxMebibytes)
	if err != nil {
		return nil, err
	}
	tensors, metadata, err := safetensors.Parse(content)
	if err != nil {
		return nil, fmt.Errorf("is truncated or not a safetensors file (%w)", err)
	}
	if text, ok := metadata[policyKey]; ok {
		return policyOrder(text)
	}
	said, err := parseCard(metadata)
	if err != nil {
		return nil, err
	}
	source, err := parseSource(said.Estimates)
	if err != nil {
		return nil, err
	}
	weights, err := parseWeights(tensors, said.Hidden)
	if err != nil {
		return nil, err
	}
	order := &Order{Name: said.Name, Kind: Learned, Estimate: source, weights: weights, ageing: math.Inf(1)}
	if said.Ageing != nil {
		order.ageing = *said.Ageing
	}
	return order, nil
}

// policyOrder returns the order that the card of a policy file names; src/steersman/orders/registry.py reads it, too.
func policyOrder(text string) (*Order, error) {
	said := struct {
		Order   string    `json:"order"`
		Weights []float64 `json:"order_weights"`
	}{}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return nil, fmt.Errorf("its card is damaged: %w", err)
	}
	if said.Order == "" {
		return nil, errors.New("is a policy without an order; expected an order file, or a name")
	}
	return parseNamed(said.Order, func(name string) (*Order, error) {
		before, overtaking, stated := strings.Cut(name, ":")
		hidden := (len(said.Weights) - linearWeights) / unitWeights
		switch {
		case strings.HasSuffix(name, suffix):
			return nil, fmt.Errorf("its order %q is a file; expected a name", said.Order)
		case before != learned && len(said.Weights) > 0:
			return nil, fmt.Errorf("its order %q takes no weights; expected %q with order_weights", said.Order, learned)
		case before != learned:
			return byName(name)
		case stated && overtaking != "any":
			return nil, overtakes(overtaking)
		case len(said.Weights) < linearWeights || hidden > maxHidden || len(said.Weights) != linearWeights+hidden*unitWeights:
			return nil, fmt.Errorf("order_weights are %d numbers; expected %d, and %d for each hidden unit",
				len(said.Weights), linearWeights, unitWeights)
		}
		return &Order{Name: name, Kind: Learned, Estimate: Auto, weights: said.Weights, ageing: math.Inf(1)}, nil
	})
}

func overtakes(overtaking string) error {
	return fmt.Errorf("overtaking is %q, and kube-scheduler tries every pod; expected an order of \"any\"", overtaking)
}

// parseCard reads the card, whose version comes first: fields of a later one are unknown here.
func parseCard(metadata map[string]string) (*card, error) {
	text, ok := metadata[cardKey]
	if !ok {
		return nil, errors.New("is not an order file")
	}
	said := &card{Schema: schema}
	err := json.Unmarshal([]byte(text), said)
	if said.Schema != schema {
		return nil, fmt.Errorf("schema %d is of another version of steersman; expected %d", said.Schema, schema)
	}
	if err == nil {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(said)
	}
	if err != nil {
		return nil, fmt.Errorf("its card is damaged: %w", err)
	}
	switch {
	case said.Name == "" || said.Overtaking == "" || said.Estimates == "":
		return nil, errors.New("its card has no name, overtaking or estimates")
	case said.Overtaking != "any":
		return nil, overtakes(said.Overtaking)
	case said.Hidden < 0 || said.Hidden > maxHidden:
		return nil, fmt.Errorf("hidden is %d; expected 0 to %d", said.Hidden, maxHidden)
	case said.Ageing != nil && !(*said.Ageing > 0):
		return nil, fmt.Errorf("ageing is %g; expected more than 0 seconds", *said.Ageing)
	}
	return said, nil
}

func parseWeights(tensors map[string]safetensors.Tensor, hidden int) ([]float64, error) {
	count := linearWeights + hidden*unitWeights
	tensor, ok := tensors[weightsKey]
	switch {
	case !ok || len(tensors) != 1:
		return nil, fmt.Errorf("has other tensors than %q", weightsKey)
	case !tensor.IsFloat() || !slices.Equal(tensor.Shape, []int{count}):
		return nil, fmt.Errorf("its weights are %s of shape %v; expected F64 of shape [%d] for %d hidden units", tensor.Kind,
			tensor.Shape, count, hidden)
	}
	weights := tensor.Floats()
	for _, weight := range weights {
		if math.IsNaN(weight) || math.IsInf(weight, 0) {
			return nil, errors.New("has a weight that is not a finite number")
		}
	}
	return weights, nil
}
