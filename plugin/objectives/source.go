// Package objectives ranks nodes by what is measured of them: reference C's objectives MA (most allocated), LA (least
// allocated), LC (least connections) and P0 (latency-aware, most allocated), and hard limits of latencies.
//
// They are the rules of steersman's simulator, scheduler and service (src/steersman/policies/telemetry_*.py), with the
// same arithmetic in the same order; tests/vectors/objectives.json holds both to the same scores.
package objectives

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/prometheus"
	"steersman.dev/plugin/scoring"
)

var rules = map[string]rule{"ma": mostAllocated, "la": leastAllocated, "lc": leastConnections, "p0": latencyAware}

// Names are those of the objectives.
func Names() []string { return slices.Sorted(maps.Keys(rules)) }

// Source ranks nodes by one objective.
type Source struct {
	rule rule
	eyes
}

var _ scoring.Source = (*Source)(nil)

// New is the source of an objective by its name. Without a collector, nil, it goes by requests and numbers of pods, and
// knows of no latency.
func New(name string, collector *prometheus.Collector, snapshot scoring.Snapshot) (*Source, error) {
	found, known := rules[name]
	if !known {
		return nil, fmt.Errorf("%q is no objective; %s are right", name, strings.Join(Names(), ", "))
	}
	return &Source{found, newEyes(collector, snapshot)}, nil
}

// Scores ranks nodes, see scoring.Source. Where nodes keep the pod's hard limit, the others get 0.
func (s *Source) Scores(_ context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, out []int64) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	raw, places, _, err := s.rank(s.rule, pod, nodes)
	if err != nil {
		return err
	}
	best, chosen, given := -1, -1, make([]float64, len(nodes))
	for i, n := range places {
		given[i] = raw[n]
		if best < 0 || raw[n] > raw[best] || raw[n] == raw[best] && n < best {
			best, chosen = n, i
		}
	}
	scoring.Rank(given, chosen, out)
	return nil
}

// eyes look at the cluster for one pod at a time.
type eyes struct {
	snapshot scoring.Snapshot
	mutex    sync.Mutex // a profile decides on one pod at a time, so nobody waits for it
	sight    sight
}

func newEyes(collector *prometheus.Collector, snapshot scoring.Snapshot) eyes {
	return eyes{snapshot: snapshot, sight: sight{collector: collector, now: time.Now}}
}

var errSnapshot error = reason{errors.New("a node is not in the scheduler's snapshot, or there is none"), "snapshot"}

// reason is an error with a name for counters.
type reason struct {
	error
	name string
}

// Reason is what counters call it.
func (r reason) Reason() string { return r.name }

// look is what is seen for a pod, the places of nodes, and a mask of them.
func (e *eyes) look(pod *v1.Pod, nodes []fwk.NodeInfo) (*seen, []int, []bool, error) {
	infos, err := e.snapshot()
	if err != nil {
		return nil, nil, nil, errSnapshot
	}
	e.sight.follow(infos)
	places, mask := make([]int, len(nodes)), make([]bool, len(infos))
	for i, node := range nodes {
		n, there := e.sight.nodes.Find(node)
		if !there {
			return nil, nil, nil, errSnapshot
		}
		places[i], mask[n] = n, true
	}
	return e.sight.show(pod), places, mask, nil
}

// rank is what a rule thinks of all places, -Inf where the pod may not go, and the places of the nodes.
func (e *eyes) rank(by rule, pod *v1.Pod, nodes []fwk.NodeInfo) ([]float64, []int, Outcome, error) {
	seen, places, mask, err := e.look(pod, nodes)
	if err != nil {
		return nil, nil, NoLimit, err
	}
	outcome := NoLimit
	if e.sight.collector != nil {
		outcome = seen.keepLimit(mask)
	}
	raw := make([]float64, len(mask))
	seen.score(by, mask, raw)
	return raw, places, outcome, nil
}

// Keeper tells which nodes keep the hard limit of a pod's latency.
type Keeper struct{ eyes }

// NewKeeper goes by what a collector knows.
func NewKeeper(collector *prometheus.Collector, snapshot scoring.Snapshot) *Keeper {
	return &Keeper{newEyes(collector, snapshot)}
}

// Keep is the names of the given nodes, which the pod could go to, that keep its hard limit: all of them where it has
// none, where no node keeps it, and where no latency is known.
func (k *Keeper) Keep(pod *v1.Pod, nodes []fwk.NodeInfo) ([]string, Outcome, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	seen, places, mask, err := k.look(pod, nodes)
	if err != nil {
		return nil, NoLimit, err
	}
	seen.learn()
	outcome := seen.keepLimit(mask)
	kept := make([]string, 0, len(nodes))
	for _, n := range places {
		if mask[n] {
			kept = append(kept, k.sight.names[n])
		}
	}
	return kept, outcome, nil
}
