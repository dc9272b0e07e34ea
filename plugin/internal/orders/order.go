// Package orders says which of two waiting pods of the same priority goes first, as src/steersman/orders does: the one
// with the lower score, the older one on ties.
package orders

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"steersman.dev/plugin/pkg/core"
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

// ageing begins the part of a text that says after how long a pod goes before all others of its priority.
const ageing = "ageing:"

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
	scorer   scorer
}

// UsesEstimates reports whether estimated run times matter.
func (o *Order) UsesEstimates() bool { return o.Kind >= Shortest }

// LearnsRunTimes reports whether run times of what ended matter.
func (o *Order) LearnsRunTimes() bool {
	return o.UsesEstimates() && (o.Estimate == Auto || o.Estimate == History)
}

// Parse returns the order of a text NAME or FILE, either with @ESTIMATES, @ageing:TIME or both. The error is one line
// and says what would be right.
func Parse(spec string) (*Order, error) {
	return parseNamed(spec, func(text string) (*Order, error) {
		if strings.HasSuffix(text, suffix) {
			return readFile(text)
		}
		return byName(text)
	})
}

// parseNamed is Parse with the meaning of names.
func parseNamed(spec string, named func(string) (*Order, error)) (*Order, error) {
	text, estimates, aged := spec, []string{}, []string{}
	for !strings.HasSuffix(text, suffix) {
		// The path of a file may contain the sign.
		at := strings.LastIndexByte(text, '@')
		if at < 0 {
			break
		}
		if after, is := strings.CutPrefix(text[at+1:], ageing); is {
			aged = append(aged, after)
		} else {
			estimates = append(estimates, text[at+1:])
		}
		text = text[:at]
	}
	if len(estimates) > 1 || len(aged) > 1 {
		return nil, fmt.Errorf("%q: expected one source of estimates and one %sTIME at most", spec, ageing)
	}
	order, err := named(text)
	if err != nil {
		return nil, err
	}
	if len(estimates) > 0 {
		if order.Estimate, err = parseSource(estimates[0]); err != nil {
			return nil, err
		}
	}
	if len(aged) > 0 {
		if order.ageing, err = parseSeconds(aged[0]); err != nil {
			return nil, err
		}
	}
	order.Name += spec[len(text):]
	if order.UsesEstimates() {
		return order, core.Compile()
	}
	return order, nil
}

// byName returns the order of a text NAME or NAME:any.
func byName(text string) (*Order, error) {
	name, overtaking, said := strings.Cut(text, ":")
	switch {
	case name == "fair":
		return nil, fmt.Errorf("%q asks what runs in each namespace, which the plugin does not count; expected %s, or "+
			"steersman schedule --order %s", text, expected(), text)
	case name == "fcfs" || name == "easy" || said && overtaking != "any":
		better := name
		if !slices.Contains(names, name) {
			better = names[Age]
		}
		return nil, fmt.Errorf("%q holds other pods back while the next one fits nowhere, and kube-scheduler tries "+
			"every pod; expected %s, or steersman schedule --order %s", text, better, text)
	}
	kind := slices.Index(names, name)
	if kind < 0 {
		return nil, fmt.Errorf("%q is unknown; expected %s", text, expected())
	}
	return &Order{Name: text, Kind: Kind(kind), Estimate: Auto, ageing: math.Inf(1)}, nil
}

var duration = regexp.MustCompile(`^\d{1,9}(\.\d{1,9})?[smhd]$`)

// parseSeconds returns the seconds of a text such as 90s, 30m, 2h or 1.5d.
func parseSeconds(text string) (float64, error) {
	if duration.MatchString(text) {
		number, err := strconv.ParseFloat(text[:len(text)-1], 64)
		seconds := map[byte]float64{'s': 1, 'm': 60, 'h': 3600, 'd': 86400}[text[len(text)-1]]
		if err == nil && number > 0 {
			return number * seconds, nil
		}
	}
	return 0, fmt.Errorf("%s%s is not a duration above 0; expected a duration such as 90s, 30m, 2h or 1.5d", ageing, text)
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
