package orders

import (
	"math"
	"sync"

	"steersman.dev/plugin/pkg/core"
)

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

// Score returns the score of a pod; the lowest goes first. A score that is not a number, or that the core does not
// have, is infinite, so that such pods go last, by age.
func (o *Order) Score(pod *Pod, cluster *Cluster) float64 {
	if pod.Wait > o.ageing {
		return math.Inf(-1)
	}
	score := 0.0
	switch o.Kind {
	case Age:
	case Smallest:
		score = pod.Size
	case Largest:
		score = -pod.Size
	default:
		score = o.scorer.score(o, &core.WaitingPod{
			Seconds: math.Max(pod.Seconds, 1), Spread: pod.Spread,
			Size: pod.Size, Share: math.Min(pod.Size/cluster.Capacity, 1),
			Wait: pod.Wait, Arrived: pod.Arrived, Free: cluster.Free, Waiting: float64(cluster.Waiting),
		})
	}
	if math.IsNaN(score) {
		return math.Inf(1)
	}
	return score
}

// inCore is the numbers of the orders in the core; pods' sizes and ages alone need none.
var inCore = map[Kind]int{Shortest: 1, Area: 2, WFP3: 3, Unicef: 4, F1: 5, Learned: 7}

// scorer is an order in the core, which is made when it is asked first, and anew after the core stopped.
type scorer struct {
	mutex    sync.Mutex
	instance *core.Instance
	order    *core.Order
}

func (s *scorer) score(order *Order, pod *core.WaitingPod) float64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	score, err := math.NaN(), error(nil)
	if s.order == nil {
		if s.instance, err = core.New(); err == nil {
			s.order, err = core.NewOrder(s.instance, inCore[order.Kind], order.weights)
		}
	}
	if err == nil {
		score, err = s.order.Score(pod)
	}
	if err != nil {
		s.order = nil
		s.instance.Close()
		return math.NaN()
	}
	return score
}
