// Package native evaluates a policy file inside kube-scheduler.
//
// What a policy sees is made of the scheduler's own snapshot, all of it, by the rules of steersman's live scheduler
// (src/steersman/kubernetes/cache/cluster_cache.py): the same cluster gives the same scores there and here. Two things
// cannot be known here as they are there, and matter to networks that see the cluster (Traits.Pointwise is false)
// alone: how many pods wait since they fit nowhere is taken for none, and the share of nodes that a pod fits on is that
// of the nodes that kube-scheduler looked at, so that percentageOfNodesToScore should be 100 for them.
package native

import (
	"context"
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/policy"
	"steersman.dev/plugin/internal/scoring"
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

// Source scores nodes by the policy of a PolicyStore.
type Source struct {
	store    *PolicyStore
	snapshot scoring.Snapshot

	mutex   sync.Mutex // a profile decides on one pod at a time, so nobody waits for it
	cluster cluster
	table   table
	number  int // of the policy that the table's scores are of
	chosen  []int
	raw     []float64
}

var (
	_ scoring.Source         = (*Source)(nil)
	_ scoring.DeviceSelector = (*Source)(nil)
)

// New returns a source that looks at the snapshot of the scheduling cycle that it is asked in.
func New(store *PolicyStore, snapshot scoring.Snapshot) *Source {
	return &Source{store: store, snapshot: snapshot, table: table{rows: map[policy.Pod]*row{}}}
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
	finished := false
	defer func() {
		if !finished { // a panic: nothing that is kept can be relied upon
			s.cluster, s.table = cluster{}, table{rows: map[policy.Pod]*row{}}
		}
	}()
	err = s.rank(ctx, loaded, wanted, pod, nodes, out)
	finished = true
	return err
}

func (s *Source) rank(
	ctx context.Context, loaded *LoadedPolicy, wanted policy.Pod, pod *v1.Pod, nodes []fwk.NodeInfo, out []int64,
) error {
	if err := s.follow(loaded); err != nil {
		return err
	}
	s.chosen, s.raw = s.chosen[:0], s.raw[:0]
	for _, info := range nodes {
		n, known := s.cluster.places.Find(info)
		if !known {
			return errNoNode
		}
		s.chosen, s.raw = append(s.chosen, n), append(s.raw, 0)
	}
	if err := s.score(ctx, loaded.Policy, wanted, pod); err != nil {
		return err
	}
	first := best(s.chosen, s.raw)
	if first < 0 {
		return errNoRoom
	}
	scoring.Rank(s.raw, first, out)
	return nil
}

// follow brings what is kept up to date with the snapshot and the policy.
func (s *Source) follow(loaded *LoadedPolicy) error {
	infos, err := s.snapshot()
	if err != nil {
		return errNoListing
	}
	s.cluster.watchOwners(!loaded.Policy.Pointwise)
	s.cluster.follow(infos)
	if s.cluster.replaced || s.number != loaded.Number {
		s.table.rows, s.number = map[policy.Pod]*row{}, loaded.Number
	}
	return nil
}

func (s *Source) score(ctx context.Context, loaded *policy.Policy, wanted policy.Pod, pod *v1.Pod) error {
	if loaded.Pointwise {
		return s.table.scores(ctx, loaded, &s.cluster, wanted, s.chosen, s.raw)
	}
	s.cluster.state.Peers = s.cluster.owners.peers(pod)
	return loaded.Scores(ctx, &s.cluster.state, &wanted, s.chosen, s.raw)
}

func (s *Source) Devices(pod *v1.Pod, node fwk.NodeInfo) (uint64, bool) {
	loaded := s.store.LoadedPolicy()
	wanted, err := PodOf(pod)
	if loaded == nil || err != nil {
		return 0, false
	}
	reserving := convertNode(node, gpu.Assumed.NodeForReservation(node, pod.UID).GPUs)
	devices, err := loaded.Policy.Devices(&reserving, &wanted)
	return devices, err == nil
}

// PodOf returns what a pod requests, as kube-scheduler will count it on the pod's node. The error is of the pod alone.
func PodOf(pod *v1.Pod) (policy.Pod, error) {
	requests := (&framework.PodInfo{Pod: pod}).CalculateResource()
	gpus, err := gpu.RequestOf(pod)
	if err != nil {
		return policy.Pod{}, &scoring.Error{Err: err, Reason: "pod", Harmless: true}
	}
	return policy.Pod{
		CPU: requests.Resource.GetMilliCPU(), Memory: requests.Resource.GetMemory(),
		CPUScored: requests.Non0CPU, MemoryScored: requests.Non0Mem, GPU: gpus,
	}, nil
}
