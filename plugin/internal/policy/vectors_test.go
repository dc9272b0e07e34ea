package policy

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// vectorFolder holds what the Python side computes, see tests/contract/cases.py.
const vectorFolder = "../../../tests/contract/data"

// How far scores may be from those of the Python side, relative to the score and at least to 1. That computes networks
// that see the cluster in single precision; all others are the same to the last bits, which depend on the processor.
const (
	tolerance = 1e-12
	ofSingle  = 1e-5
)

type vectors struct {
	Views    map[string]vectorView `json:"views"`
	Policies []vectorPolicy        `json:"policies"`
	Clusters []vectorCluster       `json:"clusters"`
}

type vectorView struct {
	Version int          `json:"version"`
	Node    [][2]float32 `json:"node"` // the lowest and the highest value of each feature
	Pod     int          `json:"pod"`
	Context int          `json:"context"`
}

type vectorPolicy struct {
	Name    string `json:"name"`
	Builtin string `json:"local"` // a built-in policy with the profile of the file; "": the file itself
	File    string `json:"file"`
}

type vectorCluster struct {
	Nodes   []vectorNode             `json:"nodes"`
	Waiting int                      `json:"waiting"`
	Pods    []vectorPod              `json:"pods"`
	Answers map[string]vectorAnswers `json:"answers"`
}

type vectorNode struct {
	Name    string   `json:"name"`
	CPU     [2]int64 `json:"cpu"` // allocatable and free
	Memory  [2]int64 `json:"memory"`
	Pods    [2]int64 `json:"pods"`
	Scored  [2]int64 `json:"scored"`
	Model   string   `json:"model"`
	GPUFree []int64  `json:"gpu_free"`
	GPUPods []int64  `json:"gpu_pods"`
	Rack    string   `json:"rack"`
}

type vectorPod struct {
	CPU      int64    `json:"cpu"`
	Memory   int64    `json:"memory"`
	Scored   [2]int64 `json:"scored"`
	GPUCount int64    `json:"gpu_count"`
	GPUMilli int64    `json:"gpu_milli"`
	Models   []string `json:"models"`
	Peers    [][2]int `json:"peers"` // nodes, and how many pods of the pod's owner run there
}

// vectorAnswers are what a policy says of each pod.
type vectorAnswers struct {
	Scores  [][]*float64 `json:"scores"` // of each node, null where the pod does not fit
	Best    []int        `json:"best"`
	Devices []uint64     `json:"devices"`
}

func (c *vectorCluster) state() *State {
	state := &State{Waiting: c.Waiting}
	for _, node := range c.Nodes {
		state.Nodes = append(state.Nodes, Node{
			Name:         node.Name,
			CPU:          Amount{node.CPU[0], node.CPU[1]},
			Memory:       Amount{node.Memory[0], node.Memory[1]},
			Pods:         Amount{node.Pods[0], node.Pods[1]},
			CPUScored:    node.Scored[0],
			MemoryScored: node.Scored[1],
			GPU:          GPUs{Model: node.Model, Free: node.GPUFree, Pods: node.GPUPods},
			Rack:         node.Rack,
		})
	}
	return state
}

func (p *vectorPod) pod() *Pod {
	return &Pod{
		CPU: p.CPU, Memory: p.Memory, CPUScored: p.Scored[0], MemoryScored: p.Scored[1],
		GPU: GPURequest{Count: p.GPUCount, Milli: p.GPUMilli, Models: strings.Join(p.Models, "|")},
	}
}

func (p *vectorPod) peers() map[int]int {
	peers := map[int]int{}
	for _, each := range p.Peers {
		peers[each[0]] = each[1]
	}
	return peers
}

// readOnce reads the vectors, which many tests look at and none changes.
var readOnce = sync.OnceValues(func() (*vectors, error) {
	content, err := unpack(filepath.Join(vectorFolder, "cases.json.gz"))
	if err != nil {
		return nil, err
	}
	found := &vectors{}
	return found, json.Unmarshal(content, found)
})

func readVectors(t testing.TB) *vectors {
	t.Helper()
	once, err := readOnce()
	if err != nil {
		t.Fatal(err)
	}
	return once
}

func unpacked(t testing.TB, path string) []byte {
	t.Helper()
	content, err := unpack(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func unpack(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}

// packedPolicy is a policy file of the vectors.
func packedPolicy(t testing.TB, name string) *Policy {
	t.Helper()
	policy, err := Parse(name, unpacked(t, filepath.Join(vectorFolder, name+".safetensors.gz")))
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func (p *vectorPolicy) open(t testing.TB) *Policy {
	t.Helper()
	policy := packedPolicy(t, p.File)
	if p.Builtin == "" {
		return policy
	}
	local, err := Builtin(p.Builtin, policy.Profile)
	if err != nil {
		t.Fatal(err)
	}
	return local
}

// TestVectors holds the scores, the best node and its devices to what the Python side says.
func TestVectors(t *testing.T) {
	all := readVectors(t)
	cases := 0
	for _, said := range all.Policies {
		t.Run(said.Name, func(t *testing.T) {
			policy, worst, allowed := said.open(t), 0.0, tolerance
			if seesCluster(policy) {
				allowed = ofSingle
			}
			for i := range all.Clusters {
				result := compare(t, policy, &all.Clusters[i], said.Name)
				worst, cases = max(worst, result), cases+len(all.Clusters[i].Pods)
			}
			if worst > allowed {
				t.Errorf("scores differ by up to %g; expected %g", worst, allowed)
			}
			t.Logf("largest difference %g", worst)
		})
	}
	if cases < 10_000 {
		t.Errorf("there are only %d cases", cases)
	}
}

// seesCluster reports whether scores of a node depend on the others.
func seesCluster(policy *Policy) bool {
	return !policy.Pointwise
}

// compare returns the largest difference of a score, relative to the score and at least to 1.
func compare(t *testing.T, policy *Policy, cluster *vectorCluster, name string) float64 {
	t.Helper()
	state, wanted, worst := cluster.state(), cluster.Answers[name], 0.0
	candidates, out := make([]int, len(state.Nodes)), make([]float64, len(state.Nodes))
	for n := range candidates {
		candidates[n] = n
	}
	for i := range cluster.Pods {
		pod := cluster.Pods[i].pod()
		state.Peers = cluster.Pods[i].peers()
		if err := policy.Scores(t.Context(), state, pod, candidates, out); err != nil {
			t.Fatal(err)
		}
		for n, score := range wanted.Scores[i] {
			if score == nil {
				if !math.IsInf(out[n], -1) {
					t.Errorf("pod %d has room on %s", i, state.Nodes[n].Name)
				}
				continue
			}
			worst = max(worst, math.Abs(out[n]-*score)/max(1, math.Abs(*score)))
		}
		best := bestOf(out)
		if best != wanted.Best[i] {
			t.Errorf("pod %d goes to %d, not %d", i, best, wanted.Best[i])
		}
		if best >= 0 {
			devices, err := policy.Devices(&state.Nodes[best], pod)
			if err != nil || devices != wanted.Devices[i] {
				t.Errorf("pod %d gets the devices %b (%v), not %b", i, devices, err, wanted.Devices[i])
			}
		}
	}
	return worst
}

func TestViewsAreThoseOfTheVectors(t *testing.T) {
	all := readVectors(t)
	if len(all.Views) != len(views) {
		t.Errorf("there are %d views, not %d", len(all.Views), len(views))
	}
	for name, said := range all.Views {
		if result := (view{said.Version, len(said.Node)}); result != views[name] {
			t.Errorf("%s: %v, not %v", name, views[name], result)
		}
		if said.Pod != podFeatures || said.Context != contextFeatures {
			t.Errorf("%s: a pod has %d features and a cluster %d", name, said.Pod, said.Context)
		}
	}
	for i := range features {
		low, high := bounds(i)
		said := all.Views["gpu"].Node
		if said[i] != [2]float32{low, high} || said[features+i] != [2]float32{-high, high} {
			t.Errorf("feature %d: from %v to %v, not %v and %v", i, low, high, said[i], said[features+i])
		}
	}
}

func TestBestIsTheFirstOfEquals(t *testing.T) {
	none := math.Inf(-1)
	for _, each := range []struct {
		scores []float64
		best   int
	}{{nil, -1}, {[]float64{none, none}, -1}, {[]float64{none, -3, -3, none}, 1}, {[]float64{1, 2, 2}, 1}} {
		if best := bestOf(each.scores); best != each.best {
			t.Errorf("%v: %d, not %d", each.scores, best, each.best)
		}
	}
}

// bestOf is the index of the highest score, the first of equals; -1 if there is no room anywhere.
func bestOf(scores []float64) int {
	best := -1
	for i, score := range scores {
		if !math.IsInf(score, -1) && (best < 0 || score > scores[best]) {
			best = i
		}
	}
	return best
}
