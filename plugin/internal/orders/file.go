package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"steersman.dev/plugin/internal/files"
	"steersman.dev/plugin/pkg/core"
)

const (
	suffix       = ".safetensors"
	maxMebibytes = 64
	maxHidden    = 1000

	linearWeights = 24 // of a learned order, and of each hidden unit
	unitWeights   = 10

	learned = "learned" // the name of an order of weights in the card of a policy file
)

// readFile reads an order file, or the order of a policy file. The error is one line: it is missing, damaged, of
// another version, or of an order that kube-scheduler cannot follow.
func readFile(path string) (*Order, error) {
	content, err := files.Read(path, maxMebibytes)
	if err != nil {
		return nil, fmt.Errorf("order file %s: %w", files.Shown(path), err)
	}
	read, err := core.ReadOrder(path, content)
	if err != nil {
		return nil, fmt.Errorf("order file %w", err)
	}
	order, err := orderOf(read)
	if err != nil {
		return nil, fmt.Errorf("order file %s: %w", files.Shown(path), err)
	}
	return order, nil
}

func orderOf(read *core.OrderFile) (*Order, error) {
	if len(read.Weights) == 0 {
		return policyOrder(read.Card)
	}
	said := struct {
		Name, Overtaking, Estimates string
		Ageing                      *float64
	}{}
	if err := json.Unmarshal(read.Card, &said); err != nil {
		return nil, damaged(err)
	}
	source, err := parseSource(said.Estimates)
	switch {
	case err != nil:
		return nil, err
	case said.Overtaking != "any":
		return nil, overtakes(said.Overtaking)
	}
	order := &Order{Name: said.Name, Kind: Learned, Estimate: source, weights: read.Weights, ageing: math.Inf(1)}
	if said.Ageing != nil {
		order.ageing = *said.Ageing
	}
	return order, nil
}

func damaged(err error) error {
	return fmt.Errorf("its card is damaged: %s", strings.Join(strings.Fields(err.Error()), " "))
}

// policyOrder returns the order that the card of a policy file names; src/steersman/orders/registry.py reads it, too.
func policyOrder(text []byte) (*Order, error) {
	said := struct {
		Order   string    `json:"order"`
		Weights []float64 `json:"order_weights"`
	}{}
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, damaged(err)
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
