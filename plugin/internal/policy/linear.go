package policy

import "context"

// linearPolicy scores a node by the pod and this node alone. The score of placing a pod of kind k on a node is
//
//	after[k] . f(node after) + change[k] . (f(node after) - f(node before)) + fgd[k] FGD(node) + rules[k] . r(node)
//
// with the features f of the view gpu, FGD's integer score and those of other heuristics r; a network of the same
// features and of the pod's may add to it. A share of a GPU goes to the device that scores best. Source:
// policies/gpu_state/arrays.py.
type linearPolicy struct {
	linear  [kinds]column
	rules   [kinds][len(heuristics)]float64 // what a point of each heuristic counts
	network *network                        // nil if it has none
}

// nodeFeatures is the number of features of a node in the view gpu: after a placement, their change, FGD's score.
const nodeFeatures = 2*features + 1

// column holds the weights of a linear value: weights of the state after a placement (where they weigh it and the
// change), of the state before (where they weigh the change alone), and of FGD's score.
type column struct {
	after, before [features]float64
	fgd           float64
}

func readColumn(weights []float64) column {
	var result column
	for i := range features {
		result.after[i] = weights[i] + weights[features+i]
		result.before[i] = weights[features+i]
	}
	result.fgd = weights[2*features]
	return result
}

// weighted returns the sum of the weighted features, the first of them first.
func (r *row) weighted(weights *[features]float64) float64 {
	sum := 0.0
	for i, weight := range weights {
		sum += float64(weight * float64(r[i]))
	}
	return sum
}

type linearScorer struct {
	*linearPolicy
	cache  *stateCache
	hidden *networkEvaluator // nil without a network
}

func (l *linearPolicy) scorer(profile *Profile, leftovers *leftovers) scorer {
	result := &linearScorer{linearPolicy: l, cache: newStateCache(profile, leftovers)}
	if l.network != nil {
		result.hidden = l.network.evaluator()
	}
	return result
}

func (l *linearScorer) scores(ctx context.Context, state *State, pod *Pod, candidates []int, out []float64) error {
	l.begin(pod)
	return scoreFitting(ctx, state, pod, candidates, out, func(_ int, node *Node) float64 {
		score, _ := l.best(node, pod)
		return score
	})
}

func (l *linearScorer) devices(node *Node, pod *Pod) uint64 {
	if pod.kind() != gpuShare {
		return node.GPU.BestFit(&pod.GPU)
	}
	l.begin(pod)
	_, devices := l.best(node, pod)
	return devices
}

func (l *linearScorer) begin(pod *Pod) {
	if l.hidden != nil {
		l.hidden.seePod(pod)
	}
}

func (l *linearScorer) best(node *Node, pod *Pod) (float64, uint64) {
	kind := pod.kind()
	before := l.cache.look(node)
	worth, fragmented := before.row.weighted(&l.linear[kind].before), before.fragmented
	if l.hidden != nil {
		l.hidden.seeBefore(&before.row)
	}
	if kind != gpuShare {
		devices := node.GPU.BestFit(&pod.GPU)
		return l.score(node, pod, devices, worth, fragmented) + l.points(node, pod), devices
	}
	best, chosen, least := 0.0, uint64(0), int64(0)
	for d, left := range node.GPU.Free {
		if left < pod.GPU.Milli || node.GPU.hasEqualBefore(d) {
			continue
		}
		score := l.score(node, pod, 1<<d, worth, fragmented)
		// Of equal ones the first where FGD's score counts, as FGD takes it, else the fullest.
		if chosen == 0 || score > best || score == best && left < least && l.linear[kind].fgd == 0 {
			best, chosen, least = score, 1<<d, left
		}
	}
	return best + l.points(node, pod), chosen
}

// points returns the weighted sum of the heuristics' scores of a node.
func (l *linearPolicy) points(node *Node, pod *Pod) float64 {
	sum, weights := 0.0, &l.rules[pod.kind()]
	for i := range heuristics {
		if weights[i] != 0 && heuristics[i].score != nil {
			sum += float64(weights[i] * float64(heuristics[i].score(node, pod)))
		}
	}
	return sum
}

// score returns the score of the node with the pod on these devices; worth and fragmented GPU milli are those of the
// node as it is.
func (l *linearScorer) score(node *Node, pod *Pod, devices uint64, worth, fragmented float64) float64 {
	linear, after := &l.linear[pod.kind()], l.cache.with(node, pod, devices)
	points := float64(gradient(fragmented, after.fragmented))
	score := after.row.weighted(&linear.after) - worth + float64(linear.fgd*points)
	if l.hidden != nil {
		score += l.hidden.score(&after.row, points)
	}
	return score
}
