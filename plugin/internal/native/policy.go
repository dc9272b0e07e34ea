package native

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"steersman.dev/plugin/internal/files"
	"steersman.dev/plugin/pkg/core"
)

const (
	// FGD is the name of the rule that follows fragmentation gradient descent, the only one that needs a profile.
	FGD = "fgd"

	maxMebibytes = 64 // of a policy file; the core has the same

	// prepareCommand embeds a profile in a policy file.
	prepareCommand = "steersman fit policy --policy FILE --nodes FILE --pods FILE --output FILE"
)

// rules are those of the core, in its order.
var rules = [...]struct {
	name   string
	points bool // scores are 0 to 100; others may leave that on nodes larger than any of the openb cluster
}{
	{"dot-product", false},
	{"gpu-clustering", true},
	{"gpu-packing", true},
	{"best-fit", false},
	{FGD, true},
	{"least-allocated", true},
	{"most-allocated", true},
	{"balanced-allocation", true},
}

// Policy is a policy of a file, or a rule.
type Policy struct {
	Name      string // what results call it
	Pointwise bool   // the score of a node depends on the pod and that node alone
	Points    bool   // scores are integers from 0 to 100

	file    string
	content []byte // nil without a file
	rule    int    // its place in rules; -1: as the file says
}

// Rule returns the place of a rule of this name.
func Rule(name string) (int, error) {
	var names []string
	for i, each := range rules {
		if each.name == name {
			return i, nil
		}
		names = append(names, each.name)
	}
	slices.Sort(names)
	return -1, fmt.Errorf("unknown policy %q; known are %s", name, strings.Join(names, ", "))
}

// readPolicy reads the policy of a file; or with a name, the rule of that name with the profile of the file, for which
// it may be missing ("") where the rule needs no profile. The error is one line.
func readPolicy(name, path string) (*Policy, error) {
	if err := core.Compile(); err != nil {
		return nil, err
	}
	result := &Policy{file: path, rule: -1}
	if path != "" {
		if err := result.readFile(); err != nil {
			return nil, err
		}
	}
	if name == "" {
		return result, nil
	}
	rule, err := Rule(name)
	switch {
	case err != nil:
		return nil, err
	case name != FGD: // which does not look at a profile
		return &Policy{Name: name, Pointwise: true, Points: rules[rule].points, rule: rule}, nil
	case path == "":
		return nil, fmt.Errorf("policy %q needs a workload profile: that of a policy file that %q made", name, prepareCommand)
	}
	result.Name, result.Pointwise, result.Points, result.rule = name, true, true, rule
	return result, nil
}

func (p *Policy) readFile() error {
	shown := files.Shown(p.file)
	content, err := files.Read(p.file, maxMebibytes)
	if err != nil {
		return fmt.Errorf("%s, file, policy: %w", shown, err)
	}
	read, err := core.ReadPolicy(p.file, content)
	if err != nil {
		return err
	}
	card := struct {
		Name, View, Network string
		Profile             *struct{} `json:"mix"`
	}{}
	if len(read.Card) > 0 { // it is no formula
		if err := json.Unmarshal(read.Card, &card); err != nil {
			return fmt.Errorf("%s, metadata, steersman: %w", shown, err)
		}
	}
	switch {
	case card.View == "telemetry":
		return fmt.Errorf("%s, card, view: is %q; expected cluster or gpu here", shown, card.View)
	case card.Network == "portfolio":
		return fmt.Errorf("%s, card, network: is %q, of which one member must be chosen for a cluster: %s",
			shown, card.Network, prepareCommand)
	case card.Profile == nil:
		return fmt.Errorf("%s, card, mix: is missing: the file has no workload profile; embed one: %s", shown, prepareCommand)
	}
	p.Name, p.content, p.Pointwise = card.Name, content, !read.ObservesOthers
	return nil
}

// describe writes policy.*, but for the types of GPUs.
func (p *Policy) describe(described *core.Description) {
	described.Int64s("policy.seed", []int64{0})
	if p.content != nil {
		described.Bytes("policy.file", p.content)
		described.Bytes("policy.name", []byte(p.file))
	} else { // without a profile all GPUs are of one type
		described.Int64s("profile.milli", nil, 0)
		described.Int64s("profile.cpu", nil, 0)
		described.Int64s("profile.gpu_count", nil, 0)
		described.Int64s("profile.value", nil, 0)
		described.Float64s("profile.share", nil, 0)
		described.Bools("profile.accepts", nil, 0, 1)
	}
	if p.rule < 0 {
		return
	}
	devices := int64(0)
	if rules[p.rule].name == FGD {
		devices = 1
	}
	described.Int64s("policy.node", []int64{0})
	described.Int64s("policy.functions", []int64{int64(p.rule)}, 1)
	described.Float64s("policy.weights", []float64{1}, 1)
	described.Int64s("policy.devices", []int64{devices})
}
