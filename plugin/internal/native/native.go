// Package native evaluates a policy file inside kube-scheduler, by the core (pkg/core).
//
// What a policy sees is made of the scheduler's own snapshot, all of it, by the rules of steersman's live scheduler
// (src/steersman/kubernetes/cache/cluster_cache.py): the same cluster gives the same scores there and here. Two things
// cannot be known here as they are there, and matter to networks that see the cluster (Policy.Pointwise is false)
// alone: how many pods wait since they fit nowhere is taken for none, and the share of nodes that a pod fits on is that
// of the nodes that kube-scheduler looked at, so that percentageOfNodesToScore should be 100 for them.
package native

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/scoring"
	"steersman.dev/plugin/pkg/core"
)

// Why a policy has no scores.
var (
	errNoPolicy = &scoring.Error{Err: errors.New("there is no policy yet"), Reason: "no-policy", Harmless: true}
	errNoRoom   = &scoring.Error{
		Err: errors.New("the pod has room on none of the nodes, as the policy sees them"), Reason: "no-room", Harmless: true,
	}
	errNoNode    = &scoring.Error{Err: errors.New("a node is not in the scheduler's snapshot"), Reason: "snapshot"}
	errNoListing = &scoring.Error{Err: errors.New("the scheduler's snapshot cannot be read"), Reason: "snapshot"}
)

// patience is how long the core may work on a question, of which nobody waits for the answer any more, until it is
// given up and begun anew.
const patience = 10 * time.Second

// reserving is how long a pod waits for its devices. Tests wait longer, so that a busy machine changes no answer.
var reserving = 100 * time.Millisecond

// Source scores nodes by the policy of a PolicyStore.
//
// The core works in a goroutine of its own: a question that takes too long is answered late, to nobody, and what was
// computed helps the next one.
type Source struct {
	store    *PolicyStore
	snapshot scoring.Snapshot

	mutex   sync.Mutex // a profile decides on one pod at a time, so nobody waits for it
	cluster *cluster
	number  int           // of the policy that the core decides by
	working chan struct{} // closed when the core is done with the last question; nil: it is
	since   time.Time     // when it was asked
	chosen  []int
	raw     []float64
}

var (
	_ scoring.Source         = (*Source)(nil)
	_ scoring.DeviceSelector = (*Source)(nil)
)

// New returns a source that looks at the snapshot of the scheduling cycle that it is asked in.
func New(store *PolicyStore, snapshot scoring.Snapshot) *Source {
	return &Source{store: store, snapshot: snapshot}
}

func (s *Source) Scores(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, out []int64) error {
	loaded := s.store.LoadedPolicy()
	if loaded == nil {
		return errNoPolicy
	}
	wanted, err := PodOf(pod)
	if err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := s.follow(ctx, loaded); err != nil {
		return err
	}
	s.chosen = s.chosen[:0]
	for _, info := range nodes {
		n, known := s.cluster.places.Find(info)
		if !known {
			return errNoNode
		}
		s.chosen = append(s.chosen, n)
	}
	asked := s.cluster.questionOf(wanted, pod, s.chosen)
	scores, err := work(ctx, s, func(c *cluster) (core.Scores, error) { return c.scores(asked) })
	if err != nil {
		return err
	}
	return s.rank(scores, out)
}

// follow looks at the snapshot, by the policy in use, once the core is done.
func (s *Source) follow(ctx context.Context, loaded *LoadedPolicy) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	infos, err := s.snapshot()
	if err != nil {
		return errNoListing
	}
	if s.cluster == nil || s.number != loaded.Number {
		next := &cluster{policy: loaded.Policy}
		if s.cluster != nil { // a new instance would take milliseconds of the first pod's timeout
			next.instance, next.decider = s.cluster.instance, s.cluster.decider
		}
		s.cluster, s.number = next, loaded.Number
	}
	finished := false
	defer func() {
		if !finished { // a panic: nothing that is kept can be relied upon
			s.forget()
		}
	}()
	s.cluster.look(infos)
	finished = true
	return nil
}

// wait waits until the core is done with the last question.
func (s *Source) wait(ctx context.Context) error {
	if s.working == nil {
		return nil
	}
	select {
	case <-s.working:
		s.working = nil
		if s.cluster.isLost() {
			s.forget()
		}
		return nil
	case <-ctx.Done():
		if time.Since(s.since) > patience {
			s.working, s.cluster = nil, nil
		}
		return ctx.Err()
	}
}

// forget forgets all that the core knows.
func (s *Source) forget() {
	if s.cluster != nil {
		s.cluster.instance.Close()
	}
	s.cluster = nil
}

// work has the core work on a question until ctx is done.
func work[T any](ctx context.Context, s *Source, ask func(*cluster) (T, error)) (T, error) {
	var result T
	err := ctx.Err()
	if err != nil {
		return result, err
	}
	c, done := s.cluster, make(chan struct{})
	s.working, s.since = done, time.Now()
	var answer T
	var failure error
	go func() {
		defer close(done)
		defer func() {
			if cause := recover(); cause != nil {
				c.known, failure = nil, fmt.Errorf("panic: %v", cause)
			}
		}()
		answer, failure = ask(c)
	}()
	if err := s.wait(ctx); err != nil {
		return result, err
	}
	if failure != nil && s.cluster == nil {
		failure = &scoring.Error{Err: failure, Reason: "core"}
	}
	return answer, failure
}

// rank writes the integer scores of the chosen nodes.
func (s *Source) rank(scores core.Scores, out []int64) error {
	s.raw = s.raw[:0]
	for _, n := range s.chosen {
		score := scores.Of(n)
		if math.IsNaN(score) || math.IsInf(score, 1) {
			return fmt.Errorf("the score of node %d is not a finite number", n)
		}
		s.raw = append(s.raw, score)
	}
	first := s.best()
	if first < 0 {
		return errNoRoom
	}
	scoring.Rank(s.raw, first, out)
	return nil
}

// best returns the position of the highest score, of equals that of the first node; -1 if there is no room.
func (s *Source) best() int {
	chosen := -1
	for i, score := range s.raw {
		switch {
		case math.IsInf(score, -1):
		case chosen < 0 || score > s.raw[chosen] || score == s.raw[chosen] && s.chosen[i] < s.chosen[chosen]:
			chosen = i
		}
	}
	return chosen
}

func (s *Source) Devices(pod *v1.Pod, info fwk.NodeInfo) (uint64, bool) {
	loaded := s.store.LoadedPolicy()
	wanted, err := PodOf(pod)
	if loaded == nil || err != nil {
		return 0, false
	}
	state := nodeOf(info, gpu.Assumed.NodeForReservation(info, pod.UID).GPUs)
	ctx, cancel := context.WithTimeout(context.Background(), reserving)
	defer cancel()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.follow(ctx, loaded) != nil {
		return 0, false
	}
	n, known := s.cluster.places.Find(info)
	if !known {
		return 0, false
	}
	devices, err := work(ctx, s, func(c *cluster) (uint64, error) { return c.devices(wanted, n, state) })
	return devices, err == nil
}
