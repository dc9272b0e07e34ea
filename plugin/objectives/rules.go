package objectives

import "math"

// Constants of policies/telemetry_rules.py and telemetry_filter.py, which explain them.
const (
	siblingsWeight = 3.0
	busy           = 0.8
	overrun        = 0.8
	margin         = 1.1
)

// Risks of a hard limit: none; no latency is known; the node is too far even when it is idle.
const (
	riskSafe    = 0.0
	riskUnknown = 50.0
	riskBeyond  = 100.0
)

// Outcome is what became of a pod's hard limit.
type Outcome int

// It has none; nodes are left that keep it whatever comes; that keep it now; no node does; no node's latency is known.
const (
	NoLimit Outcome = iota
	KeptSafely
	Kept
	NotKept
	NotMeasured
)

// String is the outcome as counters have it.
func (o Outcome) String() string {
	switch o {
	case NoLimit:
		return "no_limit"
	case KeptSafely:
		return "kept_safely"
	case Kept:
		return "kept"
	case NotKept:
		return "kept_by_no_node"
	case NotMeasured:
		return "not_measured"
	}
	return "unknown"
}

// rule is one of reference C's objectives.
type rule int

const (
	mostAllocated rule = iota
	leastAllocated
	leastConnections
	latencyAware
)

// score writes what a rule thinks of the nodes of the mask; -Inf for the others. Source: score_all.
func (s *seen) score(by rule, mask []bool, out []float64) {
	s.learn()
	total, count := 0.0, 0.0
	for n := range out {
		out[n] = s.after(by, n)
		if mask[n] && !math.IsNaN(out[n]) {
			total += out[n]
			count++
		}
	}
	neutral := 0.0
	if count > 0 {
		neutral = total / count
	}
	for n, after := range out {
		if math.IsNaN(after) {
			after = neutral
		}
		switch {
		case !mask[n]:
			out[n] = math.Inf(-1)
		case by == mostAllocated:
			out[n] = s.fullest(n, after)
		case by == latencyAware:
			out[n] = s.latencyAware(n, after)
		default:
			out[n] = -after
		}
	}
}

// after is what a rule looks at: connections, or the share of CPU used, with the pod on the node; NaN: missing.
func (s *seen) after(by rule, n int) float64 {
	if by == leastConnections {
		return s.connectionsAfter(n) + float64(float64(siblingsWeight*s.each)*s.siblings[n])
	}
	return s.cpuAfter(n)
}

// fullest prefers nodes that hold a pod, so that empty ones stay so; of these the one with most CPU used.
func (s *seen) fullest(n int, after float64) float64 {
	if s.running[n] > 0 {
		return 10 + after
	}
	return after
}

// latencyAware is limits first, then as fullest; where hard limits are at stake, the node of the least risk.
func (s *seen) latencyAware(n int, after float64) float64 {
	fullest := s.fullest(n, after)
	if !s.limited {
		if after > busy {
			return fullest - 20
		}
		return fullest
	}
	if risk := s.risk(n); risk > riskSafe {
		return 200 - risk
	}
	level := 300.0
	if s.toUsers(n)*margin <= s.limits.Soft {
		level = 400
	}
	return level + fullest - min(s.siblings[n], 9)
}

// risk is how likely a node is to break the pod's hard limit; the lower the better. Source: hard_limit_risk.
func (s *seen) risk(n int) float64 {
	hard, service, there, now := s.limits.Hard, s.assumed.ServiceMilliseconds, s.toUsers(n), s.inUse(n)
	distance := s.distance(n)
	switch {
	case math.IsNaN(distance):
		return riskUnknown
	case distance+service >= hard:
		return riskBeyond + there/hard // it is known where the distance is
	}
	most := 1 - service/(hard-distance)
	if math.IsNaN(now) {
		return 1 + max((s.requested[n]+s.podCPU)/s.capacity[n]-most, -0.9)
	}
	unseen := max(s.podsSince[n], s.siblings[n], 0)
	network := s.network[n]/s.assumed.LinkBytesPerSecond + float64(s.assumed.PodLinkShare*(unseen+1))
	worst := max(s.cpuWorst(n), network)
	if worst <= min(most, overrun) && there*margin <= hard {
		return riskSafe
	}
	return 1 + max(float64(0.5*(now+worst))-most, -0.9)
}

// inUse is the larger one of the shares of CPU and link that a node uses; NaN: one of them is missing.
func (s *seen) inUse(n int) float64 {
	return math.Max(s.cpu[n]/100, s.network[n]/s.assumed.LinkBytesPerSecond)
}

// distance is the latency from the node to the pod's users without its queue, as far as that can be told.
func (s *seen) distance(n int) float64 {
	service, use := s.assumed.ServiceMilliseconds, s.inUse(n)
	queue := service
	if use < overrun {
		queue = service / (1 - use)
	}
	return math.Max(s.toUsers(n)-queue, 0)
}

// keepLimit narrows the mask to the nodes that keep the pod's hard limit, as far as there are any: those that keep it
// safely, else those that keep it now, else all. Source: keep_measured_limit.
func (s *seen) keepLimit(mask []bool) Outcome {
	if math.IsInf(s.limits.Hard, 1) {
		return NoLimit
	}
	found := NotMeasured
	kept := make([]Outcome, len(mask))
	for n, there := range mask {
		if there {
			kept[n] = s.kept(n)
			found = min(found, kept[n])
		}
	}
	if found <= Kept {
		for n := range mask {
			mask[n] = mask[n] && kept[n] <= found
		}
	}
	return found
}

func (s *seen) kept(n int) Outcome {
	there := s.toUsers(n)
	switch {
	case math.IsNaN(there):
		return NotMeasured
	case s.risk(n) == riskSafe:
		return KeptSafely
	case there <= s.limits.Hard:
		return Kept
	}
	return NotKept
}
