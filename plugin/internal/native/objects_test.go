package native

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// vectorFolder holds what the Python side computes, see tests/contract/objects.py.
const vectorFolder = "../../../tests/contract/data"

// How far scores may be from those of the Python side, relative to the score and at least to 1. That computes networks
// that see the cluster in single precision.
const (
	tolerance = 1e-12
	ofSingle  = 1e-5
)

type objectFile struct {
	Policies []struct {
		Name    string `json:"name"`
		Builtin string `json:"local"` // a built-in policy with the profile of the file; "": the file itself
		File    string `json:"file"`
	} `json:"policies"`
	Clusters []objectCluster `json:"clusters"`
}

type objectCluster struct {
	Nodes        []*v1.Node                `json:"nodes"`
	LoadedPolicy []*v1.Pod                 `json:"running"`
	Pods         []*v1.Pod                 `json:"pods"`
	Answers      map[string]*objectAnswers `json:"answers"`
}

type objectAnswers struct {
	Scores  [][]*float64 `json:"scores"` // of each node, null where the pod does not fit
	Ranks   [][]int64    `json:"ranks"`  // integer
	Best    []int        `json:"best"`
	Devices []uint64     `json:"devices"`
}

// list is a snapshot.
type list = []fwk.NodeInfo

// snapshot is the cluster as kube-scheduler has it.
func (c *objectCluster) snapshot() list {
	result := list{}
	for _, node := range c.Nodes {
		var pods []*v1.Pod
		for _, pod := range c.LoadedPolicy {
			if pod.Spec.NodeName == node.Name {
				pods = append(pods, pod)
			}
		}
		info := framework.NewNodeInfo(pods...)
		info.SetNode(node)
		result = append(result, info)
	}
	return result
}

func unpack(t testing.TB, path string) []byte {
	t.Helper()
	file, err := os.Open(filepath.Join(vectorFolder, path+".gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// policyFile is a policy file of the vectors, unpacked.
func policyFile(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".safetensors")
	if err := os.WriteFile(path, unpack(t, name+".safetensors"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var readObjects = sync.OnceValue(func() func(testing.TB) *objectFile {
	var result *objectFile
	return func(t testing.TB) *objectFile {
		t.Helper()
		if result == nil {
			result = &objectFile{}
			if err := json.Unmarshal(unpack(t, "objects.json"), result); err != nil {
				t.Fatal(err)
			}
		}
		return result
	}
})()

func TestMain(m *testing.M) {
	reserving = time.Minute
	os.Exit(m.Run())
}

// sourceOf is a source by a policy of the vectors, for a cluster that the caller may change.
func sourceOf(t testing.TB, name, local string, nodes *list) *Source {
	t.Helper()
	path := policyFile(t, name)
	store := NewPolicyStore(local, path, func(_ *LoadedPolicy, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	store.Reload()
	return New(store, func() ([]fwk.NodeInfo, error) { return *nodes, nil })
}

// TestTheSameObjectsGetTheSameScores holds raw scores, integer ones, the best node and its devices to what the
// live scheduler's cache and policies say of the same Kubernetes objects.
func TestTheSameObjectsGetTheSameScores(t *testing.T) {
	all := readObjects(t)
	for _, said := range all.Policies {
		t.Run(said.Name, func(t *testing.T) {
			nodes := list{}
			source := sourceOf(t, said.File, said.Builtin, &nodes)
			allowed, worst, rounded := tolerance, 0.0, !source.store.LoadedPolicy().Policy.Pointwise
			if rounded {
				allowed = ofSingle
			}
			for i := range all.Clusters {
				nodes = all.Clusters[i].snapshot()
				worst = max(worst, compare(t, source, nodes, &all.Clusters[i], said.Name, rounded))
			}
			if worst > allowed {
				t.Errorf("scores differ by up to %g; expected %g", worst, allowed)
			}
		})
	}
}

// compare returns the largest difference of a score, relative to the score and at least to 1. Whole numbers may differ by
// 1 where scores are rounded.
func compare(t *testing.T, source *Source, nodes list, cluster *objectCluster, policy string, rounded bool) float64 {
	t.Helper()
	worst, out, wanted := 0.0, make([]int64, len(nodes)), cluster.Answers[policy]
	for i, pod := range cluster.Pods {
		err, first := source.Scores(t.Context(), pod, nodes, out), wanted.Best[i]
		if first < 0 {
			if !errors.Is(err, errNoRoom) {
				t.Errorf("%s: %v, not %v", pod.Name, err, errNoRoom)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", pod.Name, err)
			continue
		}
		for n, said := range wanted.Scores[i] {
			score := math.Inf(-1)
			if said != nil {
				score = *said
			}
			if source.raw[n] != score {
				worst = max(worst, math.Abs(source.raw[n]-score)/max(1, math.Abs(score)))
			}
			if off := out[n] - wanted.Ranks[i][n]; off != 0 && (!rounded || off*off > 1) {
				t.Errorf("%s on %s: %d, not %d", pod.Name, cluster.Nodes[n].Name, out[n], wanted.Ranks[i][n])
			}
		}
		if out[first] != 100 {
			t.Errorf("%s: %s gets %d", pod.Name, cluster.Nodes[first].Name, out[first])
		} else if devices, ok := source.Devices(pod, nodes[first]); !ok || devices != wanted.Devices[i] {
			t.Errorf("%s gets the devices %b, not %b", pod.Name, devices, wanted.Devices[i])
		}
	}
	return worst
}
