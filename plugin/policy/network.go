package policy

// network is layers over the features of a node and a pod, without the cluster's: what it makes of a node does not change
// with placements elsewhere. Source: policies/learned_scores.py, _network.
type network struct {
	layers stack
	after  [][]float64 // [features][width] weights of the state after a placement, as in column
	before [][]float64 // the same of the state before
	fgd    []float64   // [width] weights of FGD's score
}

// activity is what a network has worked out so far, for one goroutine.
type activity struct {
	*stackRoom
	before []float64 // [width] what the first layer makes of the node as it is
	seen   []float64 // [features]
}

func newNetwork(layers stack) *network {
	found := &network{layers: layers}
	first := layers[0].weight
	for i := range features {
		found.before = append(found.before, first[features+i])
		found.after = append(found.after, make([]float64, len(first[i])))
		for j := range first[i] {
			found.after[i][j] = first[i][j] + first[features+i][j]
		}
	}
	found.fgd = first[2*features]
	return found
}

func (n *network) activity() *activity {
	return &activity{n.layers.room(), make([]float64, len(n.fgd)), make([]float64, features)}
}

func (n *network) seePod(pod *Pod, room *activity) {
	var seen [podFeatures]float64
	encodePod(pod, 0, seen[:])
	n.layers.share(seen[:], room.stackRoom)
}

func (n *network) seeBefore(before *row, room *activity) {
	clear(room.before)
	before.widen(room.seen)
	accumulate(n.before, room.seen, room.before)
}

// run is what the network adds to the score of a node that would be in that state, with so many points by FGD.
func (n *network) run(after *row, points float64, room *activity) float64 {
	first := room.out[0]
	clear(first)
	after.widen(room.seen)
	accumulate(n.after, room.seen, first)
	for j := range first {
		first[j] = first[j] - room.before[j] + float64(n.fgd[j]*points) + room.shared[j]
	}
	n.layers[0].finish(first)
	return n.layers.follow(room.stackRoom)[0]
}

// widen writes the features in double precision.
func (r *row) widen(out []float64) {
	for i, x := range r {
		out[i] = float64(x)
	}
}
