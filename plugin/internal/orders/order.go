// Package orders says which of two waiting pods of the same priority goes first, as src/steersman/orders does: the one
// with the lower score, the older one on ties.
package orders

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Kind is a kind of score.
type Kind int

// The kinds of scores, and the orders that have them; Learned is that of order files.
const (
	Age Kind = iota
	Smallest
	Largest
	Shortest
	Area
	WFP3
	Unicef
	F1
	Learned
)

var names = []string{"age", "smallest", "largest", "shortest", "area", "wfp3", "unicef", "f1"} // by Kind

// Source says where estimates of run times come from.
type Source string

// Auto: as the pod states, else from what ended before; Stated: as it states, else an hour; History: from what ended
// before alone; None: an hour for every pod.
const (
	Auto    Source = "auto"
	Stated  Source = "stated"
	History Source = "history"
	None    Source = "none"
)

var sources = []string{string(Auto), string(Stated), string(History), string(None)}

// UnknownSeconds is the estimate of a pod that has none, where what ended before does not count.
const UnknownSeconds = 3600

// Order is an order of waiting pods.
type Order struct {
	Name     string
	Kind     Kind
	Estimate Source
	weights  []float64 // of Learned
	ageing   float64   // seconds after which a pod goes before all others of its priority
}

// UsesEstimates reports whether estimated run times matter.
func (o *Order) UsesEstimates() bool { return o.Kind >= Shortest }

// Parse returns the order of a text NAME[@ESTIMATES] or FILE[@ESTIMATES]. The error is one line and says what would be
// right.
func Parse(spec string) (*Order, error) {
	text, estimates := spec, ""
	at := strings.LastIndexByte(spec, '@')
	if at >= 0 {
		text, estimates = spec[:at], spec[at+1:]
	}
	var order *Order
	var err error
	if strings.HasSuffix(text, suffix) {
		order, err = readFile(text)
	} else {
		order, err = byName(text)
	}
	if err != nil {
		return nil, err
	}
	if at >= 0 {
		if order.Estimate, err = parseSource(estimates); err != nil {
			return nil, err
		}
		order.Name += "@" + estimates
	}
	return order, nil
}

// byName returns the order of a text NAME or NAME:any.
func byName(text string) (*Order, error) {
	name, overtaking, said := strings.Cut(text, ":")
	switch {
	case name == "fcfs" || name == "easy" || said && overtaking != "any":
		better := name
		if !slices.Contains(names, name) {
			better = names[Age]
		}
		return nil, fmt.Errorf("%q holds other pods back while the next one fits nowhere, and kube-scheduler tries "+
			"every pod; expected %s, or steersman schedule --order %s", text, better, text)
	case name == "fair":
		return nil, fmt.Errorf("%q exists in simulations alone; expected %s", text, expected())
	}
	kind := slices.Index(names, name)
	if kind < 0 {
		return nil, fmt.Errorf("%q is unknown; expected %s", text, expected())
	}
	return &Order{Name: text, Kind: Kind(kind), Estimate: Auto, ageing: math.Inf(1)}, nil
}

func expected() string {
	return fmt.Sprintf("%s, NAME@%s or an order file (order%s)", strings.Join(names, ", "), strings.Join(sources, "|"), suffix)
}

func parseSource(text string) (Source, error) {
	switch {
	case slices.Contains(sources, text):
		return Source(text), nil
	case text == "oracle" || strings.HasPrefix(text, "oracle:"):
		return "", fmt.Errorf("estimates %q: no cluster knows true run times; expected @%s", text, strings.Join(sources, ", @"))
	}
	return "", fmt.Errorf("estimates %q are unknown; expected %s", text, strings.Join(sources, ", "))
}
