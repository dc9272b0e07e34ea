package objectives

import (
	"math"

	"steersman.dev/plugin/prometheus"
)

// Constants of policies/telemetry_estimates.py, which explains them.
const (
	usePrior = 0.6 // CPU used over CPU requested, as long as nothing is known
	leastUse = 0.1
	mostUse  = 2.0
)

// seen is what is known of the nodes when a pod is decided upon: requests exactly, use as measured. Source:
// telemetry/model.py, Seen, where every node is a zone of its own.
type seen struct {
	capacity, requested []float64 // milli-CPU
	running, siblings   []float64 // pods, and those of the pod's owner

	// As measured, with what stands for values that are stale or missing; NaN where nothing does.
	cpu, network, connections []float64 // percent, bytes a second, connections
	latency                   []float64 // milliseconds to the pod's users

	// Milli-CPU requested now and not while CPU was measured; pods that came since connections were counted.
	requestedSince, podsSince []float64

	podCPU  float64 // milli-CPU that the pod requests
	limits  Limits
	limited bool
	assumed prometheus.Assumptions

	use  float64 // CPU used over CPU requested, on average over the nodes
	each float64 // connections for each pod
}

// learn works out the averages. Source: rates.
func (s *seen) learn() {
	var used, asked, connections, pods float64
	for n := range s.capacity {
		if !math.IsNaN(s.cpu[n]) {
			used += float64(s.cpu[n] / 100 * s.capacity[n])
			asked += s.requested[n] - s.requestedSince[n]
		}
		if !math.IsNaN(s.connections[n]) {
			connections += s.connections[n]
			pods += s.running[n] - s.podsSince[n]
		}
	}
	s.use, s.each = usePrior, 0
	if asked > 0 {
		s.use = min(max(used/asked, leastUse), mostUse)
	}
	if pods > 0 {
		s.each = connections / pods
	}
}

// cpuAfter is the share of a node's CPU in use with the pod on it; NaN: the metric is missing.
func (s *seen) cpuAfter(n int) float64 {
	since := s.requestedSince[n] + s.podCPU
	return math.Max(s.cpu[n]/100+float64(s.use*since)/s.capacity[n], 0)
}

// cpuWorst is the same if it, and all pods that came since, used the most of what they request.
func (s *seen) cpuWorst(n int) float64 {
	since := max(s.requestedSince[n], 0)
	return s.cpu[n]/100 + float64(mostUse*(since+s.podCPU))/s.capacity[n]
}

// connectionsAfter are a node's connections with the pod on it; NaN: the metric is missing.
func (s *seen) connectionsAfter(n int) float64 {
	return math.Max(s.connections[n]+float64(s.each*(s.podsSince[n]+1)), 0)
}

// toUsers is the latency from a node to the pod's users; NaN: it is missing, or the pod has none.
func (s *seen) toUsers(n int) float64 {
	if !s.limited {
		return math.NaN()
	}
	return s.latency[n]
}
