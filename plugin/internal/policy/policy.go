// Package policy reads policy files of steersman and computes the scores that its Python side computes.
//
// A policy ranks the nodes that a pod fits on, from the state of the cluster as integers: milli-CPU, bytes, pods, and
// milli of each GPU device (1000 is a whole one). Nothing here plans or learns. What follows from the profile of
// typical pods is embedded in the file by "steersman fit policy"; a file without it is refused.
//
// The arithmetic is that of the Python package, in the same order, so that scores agree to the last bits. Where a
// compiler might fuse a product with a sum, which rounds once instead of twice, a conversion to float64 forbids it.
//
// A Policy may be used by many goroutines at a time.
package policy

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"

	"steersman.dev/plugin/internal/safetensors"
)

// prepareCommand embeds a profile in a policy file.
const prepareCommand = "steersman fit policy --policy FILE --nodes FILE --pods FILE --output FILE"

// Policy ranks the nodes that a pod fits on. It is safe for concurrent use.
type Policy struct {
	Traits
	Name    string   // what results call it
	Card    *Card    // what its file says of it; nil for a policy that comes from none
	Profile *Profile // that was embedded in its file; nil if it has none

	create  func() scorer
	workers chan scorer // that are at rest
}

// Traits say what scores depend on, and what they may be.
type Traits struct {
	Pointwise bool // the score of a node depends on the pod and that node alone: Peers and Waiting do not matter
	Points    bool // scores are integers from 0 to 100
}

// scorer computes scores for one goroutine at a time.
type scorer interface {
	// scores writes the score of each candidate, see Policy.Scores; what is given was checked.
	scores(ctx context.Context, state *State, pod *Pod, candidates []int, out []float64) error
	// devices are those of the node, on which the pod fits, that it would get there.
	devices(node *Node, pod *Pod) uint64
}

func newPolicy(name string, profile *Profile, traits Traits, create func() scorer) *Policy {
	workers := make(chan scorer, runtime.GOMAXPROCS(0))
	return &Policy{Traits: traits, Name: name, Profile: profile, create: create, workers: workers}
}

// Scores writes the score of each candidate, an index of a node, into out: the higher, the better, and -Inf where the
// pod does not fit. Equal scores mean that the first of the candidates is the best.
//
// A GPU model that the policy was not prepared for is as none. It fails if a pod or a node is none that can be, if a
// score is not a finite number, or soon after ctx is done.
func (p *Policy) Scores(ctx context.Context, state *State, pod *Pod, candidates []int, out []float64) error {
	if len(out) < len(candidates) {
		return fmt.Errorf("there is room for %d scores of %d nodes", len(out), len(candidates))
	}
	if err := pod.check(); err != nil {
		return err
	}
	for _, n := range candidates {
		if n < 0 || n >= len(state.Nodes) {
			return fmt.Errorf("there is no node %d among %d", n, len(state.Nodes))
		}
		if err := state.Nodes[n].check(); err != nil {
			return err
		}
	}
	worker := p.take()
	defer p.release(worker)
	return worker.scores(ctx, state, pod, candidates, out)
}

// Devices returns the GPU devices of a node, on which the pod must fit, that the pod would get there: a bit mask.
func (p *Policy) Devices(node *Node, pod *Pod) (uint64, error) {
	if err := cmp.Or(pod.check(), node.check()); err != nil {
		return 0, err
	}
	if !node.Fits(pod) {
		return 0, fmt.Errorf("the pod has no room on node %q", node.Name)
	}
	worker := p.take()
	defer p.release(worker)
	return worker.devices(node, pod), nil
}

func (p *Policy) take() scorer {
	select {
	case worker := <-p.workers:
		return worker
	default:
		return p.create()
	}
}

func (p *Policy) release(worker scorer) {
	select {
	case p.workers <- worker:
	default: // there are enough
	}
}

// scoreFitting scores the candidates that the pod fits on; the others are -Inf.
func scoreFitting(
	ctx context.Context, state *State, pod *Pod, candidates []int, out []float64, score func(n int, node *Node) float64,
) error {
	for i, n := range candidates {
		if err := checkDeadline(ctx, i); err != nil {
			return err
		}
		out[i] = math.Inf(-1)
		node := &state.Nodes[n]
		if !node.Fits(pod) {
			continue
		}
		out[i] = score(n, node)
		if math.IsNaN(out[i]) || math.IsInf(out[i], 0) {
			return fmt.Errorf("the score of node %q is not a finite number", node.Name)
		}
	}
	return nil
}

// checkDeadline looks every few nodes whether there is time left.
func checkDeadline(ctx context.Context, nodes int) error {
	if nodes%64 == 63 {
		return ctx.Err()
	}
	return nil
}

// FileError says in one line what is wrong with a policy file, and what would be right.
type FileError struct {
	File    string // the file that was read
	Where   string // "file", "metadata", "card" or "tensor"
	Field   string // of the card, or the name of the tensor
	Problem string // what is wrong, and what would be right
}

func (e *FileError) Error() string {
	return fmt.Sprintf("%s, %s, %s: %s", safetensors.OneLine(e.File), e.Where, safetensors.OneLine(e.Field), e.Problem)
}
