package policy

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// contextNetwork scores nodes by their features, the pod's and the cluster's; GPU devices are chosen by the best-fit
// rule, as it was trained. With x_n = [node, pod, context]:
//
//	linear:   w_k . x_n + b_k, by the kind k of the pod
//	mlp:      head(layers(x_n))
//	deepsets: head(rho([phi(x_n), the mean of phi over all nodes])) (Zaheer et al., "Deep Sets", NeurIPS 2017)
//
// Source: policies/networks/numpy_networks.py. Python rounds to single precision after each layer; here only features
// are rounded.
type contextNetwork struct {
	view   string
	byKind [kinds]stack // the layers that give the score, the same ones for all kinds of pods but for linear
	phi    stack        // of deepsets, whose byKind is rho; nil otherwise
}

type nodeView interface {
	encode(state *State, n int, pod *Pod, fit bool, out []float64)
}

type contextScorer struct {
	cluster clusterView // whose fragmentation counts in both views
	view    nodeView
	fit     []bool      // by node
	node    []float64   // features
	sets    [][]float64 // by node, what phi makes of it
	mean    []float64   // over nodes, of that
	byKind  [kinds]*evaluator
	phi     *evaluator // nil but for deepsets
}

func (c *contextNetwork) scorer(profile *Profile, seen *leftovers) scorer {
	result := &contextScorer{node: make([]float64, views[c.view].node)}
	result.cluster.fragmenter, result.view = newFragmenter(profile), &result.cluster
	if c.view == "gpu" {
		result.view = &gpuView{newStateCache(profile, seen)}
	}
	for kind, layers := range c.byKind {
		result.byKind[kind] = newEvaluator(layers)
	}
	if c.phi != nil {
		result.phi = newEvaluator(c.phi)
		result.mean = make([]float64, len(c.phi[len(c.phi)-1].bias))
	}
	return result
}

func (c *contextScorer) devices(node *Node, pod *Pod) uint64 { return node.GPU.BestFit(&pod.GPU) }

func (c *contextScorer) scores(ctx context.Context, state *State, pod *Pod, candidates []int, out []float64) error {
	if err := c.begin(ctx, state, pod, candidates); err != nil {
		return err
	}
	network := c.byKind[pod.kind()]
	return scoreFitting(ctx, state, pod, candidates, out, func(n int, _ *Node) float64 {
		if c.phi != nil {
			return network.run(c.sets[n])[0]
		}
		c.view.encode(state, n, pod, true, c.node)
		return network.run(c.node)[0]
	})
}

// begin looks at the whole cluster, and takes in what all nodes share.
func (c *contextScorer) begin(ctx context.Context, state *State, pod *Pod, candidates []int) error {
	result, feasible, err := c.look(ctx, state, pod, candidates)
	if err != nil {
		return err
	}
	peers, err := ownerOf(state)
	if err != nil {
		return err
	}
	c.cluster.mean, c.cluster.owner = float32(result.cpuMean()), peers
	var shared [sharedFeatures]float64
	encodePod(pod, peers.running, shared[:podFeatures])
	result.encode(feasible, shared[podFeatures:])
	network := c.byKind[pod.kind()]
	if c.phi == nil {
		network.share(shared[:])
		return nil
	}
	c.phi.share(shared[:])
	if err := c.pool(ctx, state, pod); err != nil {
		return err
	}
	network.share(c.mean)
	return nil
}

// look sums up the cluster, and counts the candidates that the pod fits on.
func (c *contextScorer) look(ctx context.Context, state *State, pod *Pod, candidates []int) (*summary, int, error) {
	c.cluster.before, c.fit = c.cluster.before[:0], c.fit[:0]
	result := &summary{waiting: state.Waiting}
	for n := range state.Nodes {
		node := &state.Nodes[n]
		if err := cmp.Or(checkDeadline(ctx, n), node.check()); err != nil {
			return nil, 0, err
		}
		before := c.cluster.look(node)
		result.add(node, before)
		c.cluster.before, c.fit = append(c.cluster.before, before), append(c.fit, false)
	}
	feasible := 0
	for _, n := range candidates {
		if !c.fit[n] && state.Nodes[n].Fits(pod) {
			c.fit[n] = true
			feasible++
		}
	}
	return result, feasible, nil
}

// pool computes phi of all nodes, and its mean. A row without room and of zeros is no node.
func (c *contextScorer) pool(ctx context.Context, state *State, pod *Pod) error {
	for len(c.sets) < len(state.Nodes) {
		c.sets = append(c.sets, make([]float64, len(c.mean)))
	}
	clear(c.mean)
	there := 0
	for n := range state.Nodes {
		if err := checkDeadline(ctx, n); err != nil {
			return err
		}
		c.view.encode(state, n, pod, c.fit[n], c.node)
		if !c.fit[n] && !slices.ContainsFunc(c.node, func(x float64) bool { return x != 0 }) {
			continue
		}
		there++
		copy(c.sets[n], c.phi.run(c.node))
		for j, x := range c.sets[n] {
			c.mean[j] += x
		}
	}
	for j := range c.mean {
		c.mean[j] /= float64(max(there, 1))
	}
	return nil
}

// network is layers over the features of a node and a pod, without the cluster's: what it makes of a node does not
// change with placements elsewhere. Source: policies/gpu_state/kernels.py, _network.
type network struct {
	layers stack
	after  [][]float64 // [features][width] weights of the state after a placement, as in column
	before [][]float64 // the same of the state before
	fgd    []float64   // [width] weights of FGD's score
}

func newNetwork(layers stack) *network {
	result := &network{layers: layers}
	first := layers[0].weight
	for i := range features {
		result.before = append(result.before, first[features+i])
		result.after = append(result.after, make([]float64, len(first[i])))
		for j := range first[i] {
			result.after[i][j] = first[i][j] + first[features+i][j]
		}
	}
	result.fgd = first[2*features]
	return result
}

type networkEvaluator struct {
	*network
	*evaluator
	before []float64 // [width] what the first layer makes of the node as it is
	seen   []float64 // [features]
}

func (n *network) evaluator() *networkEvaluator {
	return &networkEvaluator{n, newEvaluator(n.layers), make([]float64, len(n.fgd)), make([]float64, features)}
}

func (r *networkEvaluator) seePod(pod *Pod) {
	var seen [podFeatures]float64
	encodePod(pod, 0, seen[:])
	r.share(seen[:])
}

func (r *networkEvaluator) seeBefore(before *row) {
	clear(r.before)
	before.widen(r.seen)
	accumulate(r.network.before, r.seen, r.before)
}

// score returns what the network adds to the score of a node that would be in that state, with so many points by FGD.
func (r *networkEvaluator) score(after *row, points float64) float64 {
	first := r.out[0]
	clear(first)
	after.widen(r.seen)
	accumulate(r.after, r.seen, first)
	before, fgd, shared := r.before, r.fgd, r.shared
	for j := range first {
		first[j] = first[j] - before[j] + float64(fgd[j]*points) + shared[j]
	}
	return r.follow()[0]
}

func (r *row) widen(out []float64) {
	for i, x := range r {
		out[i] = float64(x)
	}
}

const epsilon = 1e-5

// layer is relu(norm(x W + b)) of a row of numbers, or x W + b alone where it makes a score.
type layer struct {
	weight       [][]float64 // [inputs][outputs]
	bias         []float64   // [outputs]
	scale, shift []float64   // [outputs] of layer normalisation; nil without
	score        bool        // no normalisation, and what is negative stays
}

func (l *layer) finish(out []float64) {
	if l.score {
		return
	}
	if l.scale != nil {
		normalise(out)
		for j := range out {
			out[j] = float64(out[j]*l.scale[j]) + l.shift[j]
		}
	}
	for j := range out {
		out[j] = max(out[j], 0)
	}
}

// accumulate adds the weighted inputs to out. Sums side by side do not wait for each other.
func accumulate(weight [][]float64, in, out []float64) {
	for i, x := range in {
		if x == 0 {
			continue
		}
		weights := weight[i][:len(out)]
		for j := range out {
			out[j] += float64(weights[j] * x)
		}
	}
}

// normalise brings a row to mean 0 and variance 1 (Ba, Kiros, Hinton, "Layer Normalization", 2016).
func normalise(row []float64) {
	mean, variance := 0.0, 0.0
	for _, x := range row {
		mean += x / float64(len(row))
	}
	for j := range row {
		row[j] -= mean
		variance += float64(row[j] * row[j] / float64(len(row)))
	}
	spread := math.Sqrt(variance + epsilon)
	for j := range row {
		row[j] /= spread
	}
}

// stack is layers one after the other. Its inputs are those of a node and then those that all nodes share.
type stack []layer

// evaluator is a stack at work in one goroutine.
type evaluator struct {
	stack
	shared []float64   // [outputs of the first layer] what it makes of what all nodes share
	out    [][]float64 // of each layer
}

func newEvaluator(layers stack) *evaluator {
	result := &evaluator{stack: layers, shared: make([]float64, len(layers[0].bias))}
	for _, layer := range layers {
		result.out = append(result.out, make([]float64, len(layer.bias)))
	}
	return result
}

// share takes in what all nodes share: the last inputs of the first layer.
func (r *evaluator) share(shared []float64) {
	first := &r.stack[0]
	copy(r.shared, first.bias)
	accumulate(first.weight[len(first.weight)-len(shared):], shared, r.shared)
}

// run returns what the layers make of a node and of what is shared. It is valid until the next call.
func (r *evaluator) run(node []float64) []float64 {
	copy(r.out[0], r.shared)
	accumulate(r.stack[0].weight[:len(node)], node, r.out[0])
	return r.follow()
}

// follow finishes the first layer, whose sums are in its output, and runs the others.
func (r *evaluator) follow() []float64 {
	r.stack[0].finish(r.out[0])
	for l := 1; l < len(r.stack); l++ {
		copy(r.out[l], r.stack[l].bias)
		accumulate(r.stack[l].weight, r.out[l-1], r.out[l])
		r.stack[l].finish(r.out[l])
	}
	return r.out[len(r.out)-1]
}
