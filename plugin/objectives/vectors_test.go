package objectives

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/prometheus"
)

// tolerance is for times, which are whole nanoseconds here.
const tolerance = 1e-9

// podCase is a pod of the shared cases.
type podCase struct {
	From        float64           `json:"from"`
	Until       *float64          `json:"until"`
	Node        int               `json:"node"`
	CPU         int64             `json:"cpu"`
	Owner       string            `json:"owner"`
	Annotations map[string]string `json:"annotations"`
}

// sharedCase is one of tests/vectors/telemetry.py, which explains it.
type sharedCase struct {
	Nodes []struct {
		Name string `json:"name"`
		CPU  int64  `json:"cpu"`
	} `json:"nodes"`
	Pods     []podCase `json:"pods"`
	Now      float64   `json:"now"`
	Measured bool      `json:"measured"`
	Readings []struct {
		Feature string  `json:"feature"`
		Node    string  `json:"node"`
		User    string  `json:"user"`
		Value   float64 `json:"value"`
		Age     float64 `json:"age"`
	} `json:"readings"`
	WhenStale   map[string]string     `json:"whenStale"`
	Assumptions map[string]float64    `json:"assumptions"`
	Pod         podCase               `json:"pod"`
	Mask        []bool                `json:"mask"`
	Outcome     string                `json:"outcome"`
	Scores      map[string][]*float64 `json:"scores"`
}

func sharedCases(t testing.TB) []sharedCase {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "tests", "vectors", "telemetry.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	content, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []sharedCase
	if err := json.NewDecoder(content).Decode(&found); err != nil {
		t.Fatal(err)
	}
	return found
}

func (p *podCase) object(name string) *v1.Pod {
	requests := v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(p.CPU, resource.DecimalSI)}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Annotations: p.Annotations},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: requests}}}},
	}
	if p.Owner != "" {
		yes := true
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: p.Owner, Controller: &yes}}
	}
	return pod
}

// collector has the readings of a case, taken by a real Prometheus client from a double.
func (c *sharedCase) collector(t testing.TB, now time.Time) *prometheus.Collector {
	t.Helper()
	text := "apiVersion: steersman.dev/v1alpha1\nkind: TelemetryConfiguration\nfeatures:\n"
	for feature, when := range c.WhenStale {
		text += fmt.Sprintf("  %s: {whenStale: %s}\n", feature, when)
	}
	text += "assumptions:\n"
	for name, value := range c.Assumptions {
		text += fmt.Sprintf("  %s: %g\n", name, value)
	}
	configuration, err := prometheus.Parse("case", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	values := make([]prometheus.Value, len(c.Readings))
	for i, each := range c.Readings {
		values[i] = prometheus.Value{Feature: each.Feature, Node: each.Node, User: each.User, Value: each.Value, Age: each.Age}
	}
	return prometheus.Fixed(configuration, values, now)
}

// stage is the cluster of a case as time goes by.
type stage struct {
	infos []*framework.NodeInfo
	there map[int]*framework.PodInfo
}

func (c *sharedCase) stage() *stage {
	made := &stage{there: map[int]*framework.PodInfo{}}
	for _, each := range c.Nodes {
		info := framework.NewNodeInfo()
		info.SetNode(&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: each.Name},
			Status: v1.NodeStatus{Allocatable: v1.ResourceList{
				v1.ResourceCPU: *resource.NewMilliQuantity(each.CPU, resource.DecimalSI), v1.ResourcePods: resource.MustParse("110"),
			}},
		})
		made.infos = append(made.infos, info)
	}
	return made
}

func (s *stage) list() ([]fwk.NodeInfo, error) {
	found := make([]fwk.NodeInfo, len(s.infos))
	for n, info := range s.infos {
		found[n] = info
	}
	return found, nil
}

// at lets pods come and go as it is at a time.
func (s *stage) at(t testing.TB, c *sharedCase, second float64) {
	t.Helper()
	for i := range c.Pods {
		each := &c.Pods[i]
		runs := each.From <= second && (each.Until == nil || second < *each.Until)
		there := s.there[i]
		switch {
		case runs && there == nil:
			made, err := framework.NewPodInfo(each.object(fmt.Sprintf("pod-%d", i)))
			if err != nil {
				t.Fatal(err)
			}
			s.infos[each.Node].AddPodInfo(made)
			s.there[i] = made
		case !runs && there != nil:
			if err := s.infos[each.Node].RemovePod(testLogger(t), there.Pod); err != nil {
				t.Fatal(err)
			}
			delete(s.there, i)
		}
	}
}

// moments are when something happens: first what was before the scheduler began to look.
func (c *sharedCase) moments() []float64 {
	found := []float64{0}
	for _, each := range c.Pods {
		found = append(found, each.From)
		if each.Until != nil {
			found = append(found, *each.Until)
		}
	}
	slices.Sort(found)
	return found
}

// play is the source of an objective after everything of a case has happened.
func (c *sharedCase) play(t testing.TB, name string) (*Source, *stage) {
	t.Helper()
	made, start := c.stage(), time.Now()
	clock := func(second float64) time.Time { return start.Add(time.Duration(second * float64(time.Second))) }
	var collector *prometheus.Collector
	if c.Measured {
		collector = c.collector(t, clock(c.Now))
	}
	source, err := New(name, collector, made.list)
	if err != nil {
		t.Fatal(err)
	}
	for _, second := range c.moments() {
		made.at(t, c, second)
		if second >= 0 {
			infos, _ := made.list()
			source.sight.now = func() time.Time { return clock(second) }
			source.sight.follow(infos)
		}
	}
	source.sight.now = func() time.Time { return clock(c.Now) }
	return source, made
}

// TestSharedCases holds the rules to what Python says.
func TestSharedCases(t *testing.T) {
	cases := sharedCases(t)
	if len(cases) < 300 {
		t.Fatalf("%d cases", len(cases))
	}
	for i := range cases {
		each := &cases[i]
		for name, want := range each.Scores {
			source, made := each.play(t, name)
			infos, _ := made.list()
			var nodes []fwk.NodeInfo
			for n, info := range infos {
				if each.Mask[n] {
					nodes = append(nodes, info)
				}
			}
			raw, places, outcome, err := source.rank(source.rule, each.Pod.object("wanted"), nodes)
			if err != nil {
				t.Fatalf("case %d, %s: %v", i, name, err)
			}
			if got := strings.ReplaceAll(outcome.String(), "_", " "); got != each.Outcome {
				t.Errorf("case %d, %s: limit %s, not %s", i, name, got, each.Outcome)
			}
			checkScores(t, fmt.Sprintf("case %d, %s", i, name), raw, want)
			if len(nodes) > 0 {
				checkChoice(t, fmt.Sprintf("case %d, %s", i, name), source, each, nodes, places, want)
			}
		}
	}
}

func checkScores(t *testing.T, what string, raw []float64, want []*float64) {
	t.Helper()
	for n, score := range want {
		switch {
		case score == nil && !math.IsInf(raw[n], -1):
			t.Errorf("%s: node %d may be chosen, by %v", what, n, raw[n])
		case score != nil && !(math.Abs(raw[n]-*score) <= tolerance*max(1, math.Abs(*score))):
			t.Errorf("%s: node %d has %v, not %v", what, n, raw[n], *score)
		}
	}
}

// checkChoice makes sure that the node of the highest score, the first of equals, is alone at the top.
func checkChoice(
	t *testing.T, what string, source *Source, c *sharedCase, nodes []fwk.NodeInfo, places []int, want []*float64,
) {
	t.Helper()
	best := -1
	for n, score := range want {
		if score != nil && (best < 0 || *score > *want[best]) {
			best = n
		}
	}
	out := make([]int64, len(nodes))
	if err := source.Scores(t.Context(), c.Pod.object("wanted"), nodes, out); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for i, score := range out {
		if (score == 100) != (places[i] == best) || score < 0 || score > 100 {
			t.Errorf("%s: node %d has %d; %d is the choice", what, places[i], score, best)
		}
	}
}

// TestKeptNodes holds what the filter leaves to what Python leaves.
func TestKeptNodes(t *testing.T) {
	for i, each := range sharedCases(t) {
		if !each.Measured {
			continue
		}
		source, made := each.play(t, "la")
		keeper := &Keeper{eyes{snapshot: source.snapshot}}
		keeper.sight = source.sight
		infos, _ := made.list()
		var nodes []fwk.NodeInfo
		var want []string
		for n, info := range infos {
			if each.Mask[n] {
				nodes = append(nodes, info)
			}
			if each.Scores["la"][n] != nil {
				want = append(want, info.Node().Name)
			}
		}
		got, outcome, err := keeper.Keep(each.Pod.object("wanted"), nodes)
		if err != nil || !slices.Equal(got, want) || strings.ReplaceAll(outcome.String(), "_", " ") != each.Outcome {
			t.Errorf("case %d: %v, %s, %v; %v, %s are right", i, got, outcome, err, want, each.Outcome)
		}
	}
}
