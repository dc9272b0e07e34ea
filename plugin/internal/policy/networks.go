package policy

import (
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
// Source: policies/networks/numpy_networks.py. Python rounds to single precision after each layer; here only features are rounded.
type contextNetwork struct {
	view   string
	byKind [kinds]stack // the layers that give the score, the same ones for all kinds of pods but for linear
	phi    stack        // of deepsets, whose byKind is rho; nil otherwise
}

// nodeView writes the features of node n.
type nodeView interface {
	encode(state *State, n int, pod *Pod, fit bool, out []float64)
}

// contextScorer is a network at work in one goroutine.
type contextScorer struct {
	*contextNetwork
	counted fragmenter
	cluster *clusterView // nil in the view gpu
	view    nodeView
	before  []float64   // by node, fragmented GPU milli
	fit     []bool      // by node
	node    []float64   // features
	sets    [][]float64 // by node, what phi makes of it
	mean    []float64   // over nodes, of that
	rooms   [kinds]*activations
	phiRoom *activations
}

func (c *contextNetwork) scorer(profile *Profile, seen *leftovers) scorer {
	result := &contextScorer{contextNetwork: c, counted: newFragmenter(profile)}
	if c.view == "gpu" {
		result.view = &gpuView{newStateCache(profile, seen)}
	} else {
		result.cluster = &clusterView{fragmenter: newFragmenter(profile)}
		result.view = result.cluster
	}
	result.node = make([]float64, views[c.view].node)
	for kind := range result.rooms {
		result.rooms[kind] = c.byKind[kind].room()
	}
	if c.phi != nil {
		result.phiRoom = c.phi.room()
		result.mean = make([]float64, len(c.phi[len(c.phi)-1].bias))
	}
	return result
}

func (c *contextScorer) devices(node *Node, pod *Pod) uint64 { return node.GPU.BestFit(&pod.GPU) }

func (c *contextScorer) scores(ctx context.Context, state *State, pod *Pod, candidates []int, out []float64) error {
	if err := c.begin(ctx, state, pod, candidates); err != nil {
		return err
	}
	network, room := c.byKind[pod.kind()], c.rooms[pod.kind()]
	return scoreFitting(ctx, state, pod, candidates, out, func(n int, _ *Node) float64 {
		if c.phi != nil {
			return network.run(c.sets[n], room)[0]
		}
		c.view.encode(state, n, pod, true, c.node)
		return network.run(c.node, room)[0]
	})
}

// begin looks at the whole cluster, and takes in what all nodes share.
func (c *contextScorer) begin(ctx context.Context, state *State, pod *Pod, candidates []int) error {
	result, feasible, err := c.look(ctx, state, pod, candidates)
	if err != nil {
		return err
	}
	peers, err := ownerOf(state, pod)
	if err != nil {
		return err
	}
	if c.cluster != nil {
		c.cluster.before, c.cluster.mean, c.cluster.owner = c.before, float32(result.cpuMean()), peers
	}
	var shared [sharedFeatures]float64
	encodePod(pod, peers.running, shared[:podFeatures])
	result.encode(feasible, shared[podFeatures:])
	kind := pod.kind()
	if c.phi == nil {
		c.byKind[kind].share(shared[:], c.rooms[kind])
		return nil
	}
	c.phi.share(shared[:], c.phiRoom)
	if err := c.pool(ctx, state, pod); err != nil {
		return err
	}
	c.byKind[kind].share(c.mean, c.rooms[kind])
	return nil
}

// look sums up the cluster, and counts the candidates that the pod fits on.
func (c *contextScorer) look(ctx context.Context, state *State, pod *Pod, candidates []int) (*summary, int, error) {
	c.before, c.fit = c.before[:0], c.fit[:0]
	result := &summary{waiting: state.Waiting}
	for n := range state.Nodes {
		if err := checkDeadline(ctx, n); err != nil {
			return nil, 0, err
		}
		node := &state.Nodes[n]
		if err := node.check(); err != nil {
			return nil, 0, err
		}
		before := c.counted.look(node)
		result.add(node, before)
		c.before, c.fit = append(c.before, before), append(c.fit, false)
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
		copy(c.sets[n], c.phi.run(c.node, c.phiRoom))
		for j, x := range c.sets[n] {
			c.mean[j] += x
		}
	}
	for j := range c.mean {
		c.mean[j] /= float64(max(there, 1))
	}
	return nil
}

// network is layers over the features of a node and a pod, without the cluster's: what it makes of a node does not change
// with placements elsewhere. Source: policies/gpu_state/kernels.py, _network.
type network struct {
	layers stack
	after  [][]float64 // [features][width] weights of the state after a placement, as in column
	before [][]float64 // the same of the state before
	fgd    []float64   // [width] weights of FGD's score
}

// scratch is what a network has computed so far, for one goroutine.
type scratch struct {
	*activations
	before []float64 // [width] what the first layer makes of the node as it is
	seen   []float64 // [features]
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

func (n *network) scratch() *scratch {
	return &scratch{n.layers.room(), make([]float64, len(n.fgd)), make([]float64, features)}
}

func (n *network) seePod(pod *Pod, room *scratch) {
	var seen [podFeatures]float64
	encodePod(pod, 0, seen[:])
	n.layers.share(seen[:], room.activations)
}

func (n *network) seeBefore(before *row, room *scratch) {
	clear(room.before)
	before.widen(room.seen)
	accumulate(n.before, room.seen, room.before)
}

// run returns what the network adds to the score of a node that would be in that state, with so many points by FGD.
func (n *network) run(after *row, points float64, room *scratch) float64 {
	first := room.out[0]
	clear(first)
	after.widen(room.seen)
	accumulate(n.after, room.seen, first)
	for j := range first {
		first[j] = first[j] - room.before[j] + float64(n.fgd[j]*points) + room.shared[j]
	}
	n.layers[0].finish(first)
	return n.layers.follow(room.activations)[0]
}

// widen writes the features in double precision.
func (r *row) widen(out []float64) {
	for i, x := range r {
		out[i] = float64(x)
	}
}

// epsilon is what normalisation adds to a variance.
const epsilon = 1e-5

// layer is relu(norm(x W + b)) of a row of numbers, or x W + b alone where it makes a score.
type layer struct {
	weight       [][]float64 // [inputs][outputs]
	bias         []float64   // [outputs]
	scale, shift []float64   // [outputs] of layer normalisation; nil without
	score        bool        // no normalisation, and what is negative stays
}

// finish normalises what the layer found and cuts what is negative.
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

// activations is what a stack has computed, for one goroutine.
type activations struct {
	shared []float64   // [outputs of the first layer] what it makes of what all nodes share
	out    [][]float64 // of each layer
}

func (s stack) room() *activations {
	result := &activations{}
	for _, layer := range s {
		result.out = append(result.out, make([]float64, len(layer.bias)))
	}
	if len(s) > 0 {
		result.shared = make([]float64, len(s[0].bias))
	}
	return result
}

// share takes in what all nodes share: the last inputs of the first layer.
func (s stack) share(shared []float64, room *activations) {
	copy(room.shared, s[0].bias)
	accumulate(s[0].weight[len(s[0].weight)-len(shared):], shared, room.shared)
}

// run returns what the layers make of a node, beside what is shared. It is valid until the next run.
func (s stack) run(node []float64, room *activations) []float64 {
	copy(room.out[0], room.shared)
	accumulate(s[0].weight[:len(node)], node, room.out[0])
	s[0].finish(room.out[0])
	return s.follow(room)
}

// follow runs the layers after the first, whose output is there.
func (s stack) follow(room *activations) []float64 {
	for l := 1; l < len(s); l++ {
		copy(room.out[l], s[l].bias)
		accumulate(s[l].weight, room.out[l-1], room.out[l])
		s[l].finish(room.out[l])
	}
	return room.out[len(s)-1]
}
