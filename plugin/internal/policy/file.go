package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"steersman.dev/plugin/internal/safetensors"
)

const maxBytes = 64 << 20 // of a policy file; src/steersman/policies/files/policy_file.py has the same

// view is the features that a policy was trained on.
type view struct {
	version int
	node    int // features of a node
}

// views are those of steersman/policies/features.py that clusters here show. All have the same features of pod and cluster.
var views = map[string]view{"cluster": {1, clusterNode}, "gpu": {3, nodeFeatures}}

// Load reads a policy file, which must have a workload profile embedded.
//
// The error is a FileError of one line if the file is no policy file, is larger than maxBytes, truncated, of another
// version, or holds weights that are integers, not finite numbers or absurd; or tensors that do not fit its card.
func Load(path string) (*Policy, error) {
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, content)
}

// readFile reads at most maxBytes, also of a file that grows meanwhile.
func readFile(path string) ([]byte, error) {
	result, err := os.Stat(path)
	if err == nil && !result.Mode().IsRegular() {
		return nil, &FileError{path, "file", "policy", "is no regular file"}
	}
	if err == nil && result.Size() > maxBytes {
		return nil, tooLarge(path, result.Size())
	}
	var content []byte
	if err == nil {
		content, err = readMost(path, maxBytes+1)
	}
	if err != nil {
		var cause *fs.PathError
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return nil, &FileError{path, "file", "policy", "cannot be read: " + err.Error()}
	}
	if len(content) > maxBytes {
		return nil, tooLarge(path, int64(len(content)))
	}
	return content, nil
}

func tooLarge(path string, size int64) error {
	problem := fmt.Sprintf("is %d bytes; a policy has %d MiB at most", size, maxBytes>>20)
	return &FileError{path, "file", "size", problem}
}

// readMost reads a file up to so many bytes.
func readMost(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, most))
}

// Parse parses the content of a policy file, see Load; errors name the file as given.
func Parse(file string, content []byte) (*Policy, error) {
	result, metadata, err := safetensors.Parse(content)
	if err != nil {
		problem := fmt.Sprintf("is truncated or no safetensors file (%v)", err)
		return nil, &FileError{file, "file", "policy", problem}
	}
	card, err := parseCard(file, metadata)
	if err != nil {
		return nil, err
	}
	all := &tensors{file, result, map[string]bool{}}
	if err := all.checkNumbers(); err != nil {
		return nil, err
	}
	if card.Profile == nil {
		return nil, &FileError{file, "card", "mix", "is missing: the file has no workload profile; embed one: " + prepareCommand}
	}
	policy, err := open(all, card)
	if err != nil {
		return nil, err
	}
	policy.card = card
	return policy, nil
}

// open reads the profile of a file, and its weights.
func open(all *tensors, card *Card) (*Policy, error) {
	reader := &profileReader{tensors: all}
	profile, err := readProfile(reader, card.Profile)
	if err != nil {
		return nil, err
	}
	var seen *leftovers
	if card.View == "gpu" {
		if seen, err = readLeftovers(reader, profile); err != nil {
			return nil, err
		}
	}
	create, pointwise, err := readNetwork(all, card, profile, seen)
	if err != nil {
		return nil, err
	}
	if err := all.checkAllRead(true, "is not one of this network's"); err != nil {
		return nil, err
	}
	if err := all.checkAllRead(false, fmt.Sprintf("is not one that the view %q sees", card.View)); err != nil {
		return nil, err
	}
	return newPolicy(card.Name, profile, Traits{Pointwise: pointwise}, create), nil
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
		problem := fmt.Sprintf("is %q; expected cluster or gpu here", card.View)
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
