package orders

import "math"

// Pod is what an order knows of a waiting pod.
type Pod struct {
	Seconds float64 // estimated run time
	Spread  float64 // logarithm of the 90th percentile of the estimate over its median
	Size    float64 // in GPUs, or in CPUs where no node has a GPU
	Wait    float64 // seconds waited
	Arrived float64 // seconds from the start of the scheduler to the arrival
}

// Cluster is what an order knows of the cluster.
type Cluster struct {
	Capacity float64 // GPUs, or CPUs where no node has a GPU
	Free     float64 // free share of it
	Waiting  int     // pods that wait
}

// Score returns the score of a pod; the lowest goes first. A score that is not a number is infinite, so that such pods
// go last, by age. It does not allocate.
func (o *Order) Score(pod *Pod, cluster *Cluster) float64 {
	if pod.Wait > o.ageing {
		return math.Inf(-1)
	}
	var score float64
	switch o.Kind {
	case Age:
		return 0
	case Smallest:
		score = pod.Size
	case Largest:
		score = -pod.Size
	case Learned:
		score = o.learnedScore(pod, cluster)
	default:
		score = simpleScore(o.Kind, math.Max(pod.Seconds, 1), pod.Size, pod.Wait, pod.Arrived)
	}
	if math.IsNaN(score) {
		return math.Inf(1)
	}
	return score
}

// simpleScore returns a score that needs nothing but the pod: estimated seconds r, size n, seconds waited w. The
// sources are in core/src/order.rs.
func simpleScore(kind Kind, r, n, w, arrived float64) float64 {
	switch kind {
	case Shortest:
		return r
	case Area:
		return r * n
	case WFP3:
		ratio := w / r
		return -(ratio * ratio * ratio) * n
	case Unicef:
		return -w / (math.Log2(1+n) * r)
	default:
		return float64(math.Log10(math.Max(r, 1))*n) + float64(870*math.Log10(math.Max(arrived, 1)))
	}
}

// Weights of a learned order. Its last input, of 7 linear terms and one of each unit, is the delay until enough is
// free. It is 0 for an order that commits to no pod, and others are refused.
const (
	linearWeights = 24
	linearTerms   = linearWeights - 7
	unitInputs    = 8
	unitWeights   = unitInputs + 2 // a bias, and what its output counts
)

// learnedScore returns a linear function of logarithms and their products, with a layer of units x / (1 + |x|) on top.
func (o *Order) learnedScore(pod *Pod, cluster *Cluster) float64 {
	share := math.Min(pod.Size/cluster.Capacity, 1)
	e := (math.Log(math.Max(pod.Seconds, 1)) - 7) / 3
	s := (math.Log(math.Max(share, 1e-6)) + 3) / 2
	t := (math.Log1p(pod.Wait) - 6) / 3
	q := (math.Log1p(float64(cluster.Waiting)) - 4) / 2
	fits := 0.0
	if share <= cluster.Free+1e-9 {
		fits = 1
	}
	terms := [linearTerms]float64{
		e, s, t, e * e, s * s, t * t, e * s, e * t, s * t,
		fits, fits * e, fits * s, cluster.Free * e, cluster.Free * s, q * e, q * s, pod.Spread,
	}
	inputs := [unitInputs - 1]float64{e, s, t, fits, cluster.Free, q, pod.Spread}
	score := dot(o.weights, terms[:])
	for unit := o.weights[linearWeights:]; len(unit) >= unitWeights; unit = unit[unitWeights:] {
		total := unit[unitInputs] + dot(unit, inputs[:])
		score += float64(unit[unitInputs+1] * total / (1 + math.Abs(total)))
	}
	return score
}

// dot returns the scalar product of values and as many weights; the conversion keeps compilers from fusing products
// with sums.
func dot(weights, values []float64) float64 {
	sum := 0.0
	for i, value := range values {
		sum += float64(weights[i] * value)
	}
	return sum
}
