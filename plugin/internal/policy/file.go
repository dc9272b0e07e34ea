package policy

import (
	"encoding/json"
	"fmt"
	"strings"

	"steersman.dev/plugin/internal/files"
	"steersman.dev/plugin/internal/safetensors"
)

const maxMebibytes = 64 // of a policy file; src/steersman/policies/files/policy_file.py has the same

type view struct {
	version int
	node    int // features of a node
}

// views are those of steersman/policies/features.py that clusters here show. All have the same features of pod and
// cluster.
var views = map[string]view{"cluster": {1, clusterNode}, "gpu": {3, nodeFeatures}}

// Load reads a policy file, which must have a workload profile embedded.
//
// The error is a FileError of one line if the file is not a policy file, is larger than maxMebibytes, truncated, of
// another version, or holds weights that are integers, not finite numbers or absurd; or tensors that do not fit its
// card.
func Load(path string) (*Policy, error) {
	content, err := files.Read(path, maxMebibytes)
	if err != nil {
		return nil, &FileError{path, "file", "policy", err.Error()}
	}
	return Parse(path, content)
}

// Parse parses the content of a policy file, see Load; errors name the file as given.
func Parse(file string, content []byte) (*Policy, error) {
	tensors, metadata, err := safetensors.Parse(content)
	if err != nil {
		return nil, &FileError{file, "file", "policy", fmt.Sprintf("is truncated or no safetensors file (%v)", err)}
	}
	r := newReader(file, tensors)
	card := parseCard(r, metadata)
	r.checkNumbers()
	if r.err == nil && card.Profile == nil {
		r.refuseCard("mix", "is missing: the file has no workload profile; embed one: %s", prepareCommand)
	}
	if r.err != nil {
		return nil, r.err
	}
	profile := readProfile(r, card.Profile)
	var seen *leftovers
	if r.err == nil && card.View == "gpu" {
		seen = readLeftovers(r, profile)
	}
	create, pointwise := readNetwork(r, card, profile, seen)
	r.checkAllRead(true, "is not one of this network's")
	r.checkAllRead(false, fmt.Sprintf("is not one that the view %q sees", card.View))
	if r.err != nil {
		return nil, r.err
	}
	policy := newPolicy(card.Name, profile, Traits{Pointwise: pointwise}, create)
	policy.Card = card
	return policy, nil
}

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
	Profile       *ProfileCard   `json:"mix"`           // the workload profile that is embedded in the file
	ComparedOn    *ComparedOn    `json:"compared_on"`   // where it was compared with every rule
	Order         string         `json:"order"`         // who goes next, see internal/orders; "": not said
	OrderWeights  []float64      `json:"order_weights"` // of a learned order
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

// ProfileCard is what a card says of the profile in the file.
type ProfileCard struct {
	Version     int      `json:"version"`      // of the tensors
	Workload    string   `json:"workload"`     // whose pods it was derived from
	TypicalPods int      `json:"typical_pods"` // how many kinds of pods it has
	Models      []string `json:"models"`       // the GPU models it knows, in the order of its tensors
	Resources   []string `json:"resources"`    // by typical pod, the name of its GPUs, "" for any; empty: any for all
}

// required are the fields that a card cannot do without.
var required = []string{"name", "view", "view_version", "network", "objective", "algorithm"}

// parseCard reads the card in a file's metadata and checks that it is one for the features here.
func parseCard(r *reader, metadata map[string]string) *Card {
	card := &Card{Normalisation: "none"}
	text, ok := metadata[cardKey]
	if !ok {
		r.refuse("metadata", cardKey, "is missing: expected the model card of a policy file of steersman")
		return card
	}
	refuse := func(problem any) {
		r.refuse("metadata", cardKey, "is not a model card: %s", strings.ReplaceAll(fmt.Sprint(problem), "\n", " "))
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		refuse(err)
	}
	var version int
	if err := json.Unmarshal(fields["schema"], &version); err != nil || version != schema {
		r.refuseCard("schema", "is not %d, which this version of steersman reads", schema)
	}
	for _, name := range required {
		if given, ok := fields[name]; !ok || string(given) == "null" {
			refuse("it has no " + name)
		}
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(card); err != nil {
		refuse(err)
	}
	switch view, ok := views[card.View]; {
	case !ok:
		r.refuseCard("view", "is %q; expected cluster or gpu here", card.View)
	case card.ViewVersion != view.version:
		r.refuseCard("view_version", "is %d, but here the features %q are at %d: train it again",
			card.ViewVersion, card.View, view.version)
	}
	return card
}
