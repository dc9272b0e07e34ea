package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	schema  = 1
	cardKey = "steersman"
)

// Card is what a policy file says of itself.
type Card struct {
	Schema        int            `json:"schema"`        // version of this layout
	Name          string         `json:"name"`          // what results call the policy
	View          string         `json:"view"`          // the features it was trained on
	ViewVersion   int            `json:"view_version"`  // their version
	Network       string         `json:"network"`       // what computes scores from features
	Members       []string       `json:"members"`       // of a rule, its name; of a portfolio, its weights and rules
	Hidden        []int          `json:"hidden"`        // widths of the network's layers
	Normalisation string         `json:"normalisation"` // in the network
	Objective     string         `json:"objective"`     // what it was trained for
	Algorithm     string         `json:"algorithm"`     // and how
	Protocol      string         `json:"protocol"`      // what it was trained in
	Ratio         *float64       `json:"ratio"`         // of the protocol, if it has one
	Load          *float64       `json:"load"`          // likewise
	Training      []string       `json:"training"`      // workloads seen in training
	Validation    []string       `json:"validation"`    // workloads used to choose among checkpoints
	Test          []string       `json:"test"`          // workloads used for neither
	Seeds         string         `json:"seeds"`         // of training and validation
	Settings      map[string]any `json:"settings"`      // further options of the algorithm
	Steps         int            `json:"steps"`         // decisions, or episodes, that training took
	Scores        []CardScore    `json:"scores"`        // against baselines
	MadeBy        string         `json:"made_by"`       // version of steersman
	Mix           *MixCard       `json:"mix"`           // the mix that is baked into the file
	ComparedOn    *ComparedOn    `json:"compared_on"`   // where it was compared with every rule
}

// ComparedOn is the cluster that the policy was compared with every rule on.
type ComparedOn struct {
	Nodes  int    `json:"nodes"`  // how many
	Shapes string `json:"shapes"` // digest of the nodes by shape and count
	Draws  int    `json:"draws"`  // that every candidate played
}

// CardScore is how the policy did on a workload: the means of a metric, its own and a baseline's on the same seeds.
type CardScore struct {
	Workload     string  `json:"workload"`
	Metric       string  `json:"metric"`
	Mean         float64 `json:"mean"`
	Baseline     string  `json:"baseline"`
	BaselineMean float64 `json:"baseline_mean"`
	Runs         int     `json:"runs"`
}

// MixCard is what a card says of the mix in the file.
type MixCard struct {
	Version     int      `json:"version"`      // of the tensors
	Workload    string   `json:"workload"`     // whose pods it was derived from
	TypicalPods int      `json:"typical_pods"` // how many kinds of pods it has
	Models      []string `json:"models"`       // the GPU models it knows, in the order of its tensors
	Resources   []string `json:"resources"`    // by typical pod, the name of its GPUs, "" for any; empty: any for all
}

// required are the fields that a card cannot do without.
var required = []string{"name", "view", "view_version", "network", "objective", "algorithm"}

// parseCard reads the card in a file's metadata and makes sure that it is one for the features here.
func parseCard(file string, metadata map[string]string) (*Card, error) {
	text, ok := metadata[cardKey]
	if !ok {
		problem := "is missing: a policy file has a model card; this is none of ours"
		return nil, &FileError{file, "metadata", cardKey, problem}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return nil, notACard(file, err)
	}
	var version int
	if err := json.Unmarshal(fields["schema"], &version); err != nil || version != schema {
		problem := fmt.Sprintf("is not %d, which this version of steersman reads", schema)
		return nil, &FileError{file, "card", "schema", problem}
	}
	for _, name := range required {
		if given, ok := fields[name]; !ok || string(given) == "null" {
			return nil, notACard(file, fmt.Errorf("it has no %s", name))
		}
	}
	card := &Card{Normalisation: "none"}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(card); err != nil {
		return nil, notACard(file, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, notACard(file, errors.New("it goes on after its end"))
	}
	return card, checkView(file, card)
}

func checkView(file string, card *Card) error {
	view, ok := views[card.View]
	if !ok {
		problem := fmt.Sprintf("is %q; cluster or gpu is right here", card.View)
		return &FileError{file, "card", "view", problem}
	}
	if card.ViewVersion != view.version {
		problem := fmt.Sprintf(
			"is %d, but here the features %q are at %d: train it again", card.ViewVersion, card.View, view.version)
		return &FileError{file, "card", "view_version", problem}
	}
	return nil
}

func notACard(file string, err error) error {
	problem := string(bytes.ReplaceAll([]byte(err.Error()), []byte("\n"), []byte(" ")))
	return &FileError{file, "metadata", cardKey, "is not a model card: " + problem}
}
