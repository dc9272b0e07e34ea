package policy

import (
	"context"
	"math"
)

// contextNetwork scores nodes by their features, the pod's and the cluster's; GPU devices are chosen by the best-fit
// rule, as it was trained. With x_n = [node, pod, context]:
//
//	linear:   w_k . x_n + b_k, by the kind k of the pod
//	mlp:      head(layers(x_n))
//	deepsets: head(rho([phi(x_n), the mean of phi over all nodes])) (Zaheer et al., "Deep Sets", NeurIPS 2017)
//
// Source: policies/networks.py. Python rounds to single precision after each layer; here only features are rounded.
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
	rooms   [kinds]*stackRoom
	phiRoom *stackRoom
}

func (c *contextNetwork) scorer(mix *Mix, seen *outlook) scorer {
	found := &contextScorer{contextNetwork: c, counted: newFragmenter(mix)}
	if c.view == "gpu" {
		found.view = &gpuView{newStates(mix, seen)}
	} else {
		found.cluster = &clusterView{fragmenter: newFragmenter(mix)}
		found.view = found.cluster
	}
	found.node = make([]float64, views[c.view].node)
	for kind := range found.rooms {
		found.rooms[kind] = c.byKind[kind].room()
	}
	if c.phi != nil {
		found.phiRoom = c.phi.room()
		found.mean = make([]float64, len(c.phi[len(c.phi)-1].bias))
	}
	return found
}

func (c *contextScorer) devices(node *Node, pod *Pod) uint64 { return node.bestDevices(pod) }

func (c *contextScorer) scores(ctx context.Context, state *State, pod *Pod, candidates []int, out []float64) error {
	if err := c.begin(ctx, state, pod, candidates); err != nil {
		return err
	}
	kind := pod.kind()
	for i, n := range candidates {
		if err := over(ctx, i); err != nil {
			return err
		}
		out[i] = math.Inf(-1)
		if !c.fit[n] {
			continue
		}
		score := c.score(state, n, pod, c.byKind[kind], c.rooms[kind])
		if math.IsNaN(score) || math.IsInf(score, 0) {
			return notFinite(&state.Nodes[n])
		}
		out[i] = score
	}
	return nil
}

func (c *contextScorer) score(state *State, n int, pod *Pod, network stack, room *stackRoom) float64 {
	if c.phi != nil {
		return network.run(c.sets[n], room)[0]
	}
	c.view.encode(state, n, pod, true, c.node)
	return network.run(c.node, room)[0]
}

// begin looks at the whole cluster, and takes in what all nodes share.
func (c *contextScorer) begin(ctx context.Context, state *State, pod *Pod, candidates []int) error {
	found, feasible, err := c.look(ctx, state, pod, candidates)
	if err != nil {
		return err
	}
	peers, err := ownerOf(state, pod)
	if err != nil {
		return err
	}
	if c.cluster != nil {
		c.cluster.before, c.cluster.mean, c.cluster.owner = c.before, float32(found.cpuMean()), peers
	}
	var shared [sharedFeatures]float64
	encodePod(pod, peers.running, shared[:podFeatures])
	found.encode(feasible, shared[podFeatures:])
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

// look sums up the cluster, and counts the candidates that the pod has room on.
func (c *contextScorer) look(ctx context.Context, state *State, pod *Pod, candidates []int) (*summary, int, error) {
	c.before, c.fit = c.before[:0], c.fit[:0]
	found := &summary{waiting: state.Waiting}
	for n := range state.Nodes {
		if err := over(ctx, n); err != nil {
			return nil, 0, err
		}
		node := &state.Nodes[n]
		if err := node.check(); err != nil {
			return nil, 0, err
		}
		before := c.counted.look(node)
		found.add(node, before)
		c.before, c.fit = append(c.before, before), append(c.fit, false)
	}
	feasible := 0
	for _, n := range candidates {
		if !c.fit[n] && state.Nodes[n].Fits(pod) {
			c.fit[n] = true
			feasible++
		}
	}
	return found, feasible, nil
}

// pool works out phi of all nodes, and its mean. A row without room and of zeros is no node.
func (c *contextScorer) pool(ctx context.Context, state *State, pod *Pod) error {
	for len(c.sets) < len(state.Nodes) {
		c.sets = append(c.sets, make([]float64, len(c.mean)))
	}
	clear(c.mean)
	there := 0
	for n := range state.Nodes {
		if err := over(ctx, n); err != nil {
			return err
		}
		c.view.encode(state, n, pod, c.fit[n], c.node)
		if !c.fit[n] && zero(c.node) {
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

func zero(row []float64) bool {
	for _, x := range row {
		if x != 0 {
			return false
		}
	}
	return true
}
