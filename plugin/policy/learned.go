package policy

import "context"

// learned is a policy of the score table. The score of placing a pod of kind k on a node is
//
//	after[k] . f(node after) + change[k] . (f(node after) - f(node before)) + fgd[k] FGD(node) + rules[k] . r(node)
//
// with the features f of the view gpu, FGD's whole-numbered score and those of other heuristics r; a network may add to it what it makes of the same
// features and of the pod's. A share of a GPU goes to the device that scores best. Source: policies/learned.py.
type learned struct {
	linear  [kinds]column
	rules   [kinds][rules]float64 // what a point of each heuristic counts
	network *network              // nil if it has none
}

// nodeFeatures is how many features a node has in the view gpu: after a placement, their change, FGD's score.
const nodeFeatures = 2*features + 1

// column is what a value is made of: weights of the state after a placement (where they weigh it and the change), of the
// state before (where they weigh the change alone), and of FGD's score.
type column struct {
	after, before [features]float64
	fgd           float64
}

// columnOf reads a value's weights from a row of a tensor.
func columnOf(weights []float64) column {
	var found column
	for i := range features {
		found.after[i] = weights[i] + weights[features+i]
		found.before[i] = weights[features+i]
	}
	found.fgd = weights[2*features]
	return found
}

// weighted is the sum of the weighted features, the first of them first.
func (r *row) weighted(weights *[features]float64) float64 {
	sum := 0.0
	for i, weight := range weights {
		sum += float64(weight * float64(r[i]))
	}
	return sum
}

// learnedScorer is a learned policy at work in one goroutine.
type learnedScorer struct {
	*learned
	known  *states
	hidden *activity // nil without a network
}

func (l *learned) scorer(mix *Mix, outlook *outlook) scorer {
	found := &learnedScorer{learned: l, known: newStates(mix, outlook)}
	if l.network != nil {
		found.hidden = l.network.activity()
	}
	return found
}

func (l *learnedScorer) scores(ctx context.Context, state *State, pod *Pod, candidates []int, out []float64) error {
	l.begin(pod)
	return eachFitting(ctx, state, pod, candidates, out, func(node *Node) float64 {
		score, _ := l.best(node, pod)
		return score
	})
}

func (l *learnedScorer) devices(node *Node, pod *Pod) uint64 {
	if pod.kind() != gpuShare {
		return node.bestDevices(pod)
	}
	l.begin(pod)
	_, devices := l.best(node, pod)
	return devices
}

func (l *learnedScorer) begin(pod *Pod) {
	if l.network != nil {
		l.network.seePod(pod, l.hidden)
	}
}

// best is the score of a node, and the devices of the pod there.
func (l *learnedScorer) best(node *Node, pod *Pod) (float64, uint64) {
	kind := pod.kind()
	before := l.known.look(node)
	worth, fragmented := before.row.weighted(&l.linear[kind].before), before.fragmented
	if l.network != nil {
		l.network.seeBefore(&before.row, l.hidden)
	}
	if kind != gpuShare {
		devices := node.bestDevices(pod)
		return l.score(node, pod, devices, worth, fragmented) + l.points(node, pod), devices
	}
	best, chosen, least := 0.0, uint64(0), int64(0)
	for d, left := range node.GPUFree {
		if left < pod.GPUMilli || node.alikeBefore(d) {
			continue
		}
		score := l.score(node, pod, 1<<d, worth, fragmented)
		if chosen == 0 || score > best || score == best && left < least { // of equal ones the fullest
			best, chosen, least = score, 1<<d, left
		}
	}
	return best + l.points(node, pod), chosen
}

// points is what the heuristics' scores of a node count in all.
func (l *learned) points(node *Node, pod *Pod) float64 {
	sum, weights := 0.0, &l.rules[pod.kind()]
	for i, score := range ruleScores {
		if weights[i] != 0 && score != nil {
			sum += float64(weights[i] * float64(score(node, pod)))
		}
	}
	return sum
}

// score is that of the node with the pod on these devices; the node as it is has that worth and fragmented GPU milli.
func (l *learnedScorer) score(node *Node, pod *Pod, devices uint64, worth, fragmented float64) float64 {
	linear, after := &l.linear[pod.kind()], l.known.with(node, pod, devices)
	points := float64(gradient(fragmented, after.fragmented))
	score := after.row.weighted(&linear.after) - worth + float64(linear.fgd*points)
	if l.network != nil {
		score += l.network.run(&after.row, points, l.hidden)
	}
	return score
}
