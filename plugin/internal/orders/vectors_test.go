package orders

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"steersman.dev/plugin/internal/podowner"
)

// vectorFolder holds what the Python side computes, see tests/contract/make_orders.py.
const vectorFolder = "../../../tests/contract/data"

// tolerance is how far numbers may be from those of the Python side, relative to the number and at least to 1.
const tolerance = 1e-12

type vectors struct {
	Simple []struct {
		Seconds, Size, Wait, Arrived float64
		Scores                       map[string]float64
	}
	Learned []struct {
		Seconds, Spread, Size, Wait, Capacity, Free, Score float64
		Waiting                                            int
	}
	MaxGroups int `json:"max_groups"`
	History   []struct {
		Ended, Asked            vectorPod
		Seconds, Median, Spread float64
	}
}

type vectorPod struct {
	Namespace, Owner         string
	CPU, Memory, GPUs, Milli int64
}

func (p vectorPod) key() (Requests, podowner.Owner) {
	requests := Requests{MilliCPU: p.CPU, Memory: p.Memory, GPUs: p.GPUs, GPUMilli: p.Milli}
	return requests, podowner.Owner{Namespace: p.Namespace, Name: p.Owner}
}

func read(t testing.TB) *vectors {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(vectorFolder, "orders.json"))
	if err != nil {
		t.Fatal(err)
	}
	result := &vectors{}
	if err := json.Unmarshal(content, result); err != nil {
		t.Fatal(err)
	}
	return result
}

func isClose(got, want float64) bool {
	return math.Abs(got-want) <= tolerance*math.Max(1, math.Abs(want))
}

func parse(t testing.TB, spec string) *Order {
	t.Helper()
	order, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return order
}

func TestScoresOfRulesAreThoseOfPython(t *testing.T) {
	cases, compared := read(t).Simple, 0
	for _, each := range cases {
		pod := Pod{Seconds: each.Seconds, Size: each.Size, Wait: each.Wait, Arrived: each.Arrived}
		for name, want := range each.Scores {
			if got := parse(t, name).Score(&pod, &Cluster{}); !isClose(got, want) {
				t.Errorf("%s of %+v: %v, not %v", name, pod, got, want)
			}
			compared++
		}
	}
	if compared != 1000 {
		t.Errorf("%d comparisons", compared)
	}
}

func TestScoresOfAnOrderFileAreThoseOfPython(t *testing.T) {
	order := parse(t, filepath.Join(vectorFolder, "order.safetensors"))
	if order.Name != "learned" || order.Kind != Learned || order.Estimate != Stated || order.ageing != 86_400 {
		t.Errorf("%+v", order)
	}
	order.ageing = math.Inf(1)
	cases, fit := read(t).Learned, 0
	for _, each := range cases {
		pod := Pod{Seconds: each.Seconds, Spread: each.Spread, Size: each.Size, Wait: each.Wait}
		cluster := Cluster{Capacity: each.Capacity, Free: each.Free, Waiting: each.Waiting}
		if got := order.Score(&pod, &cluster); !isClose(got, each.Score) {
			t.Errorf("%+v: %v", each, got)
		}
		if each.Size/each.Capacity <= each.Free {
			fit++
		}
	}
	if len(cases) != 100 || fit < 20 || fit > 90 {
		t.Errorf("%d cases, of which %d fit", len(cases), fit)
	}
}

func TestEstimatesAreThoseOfPython(t *testing.T) {
	all := read(t)
	runTimes := NewRunTimes()
	runTimes.most = all.MaxGroups
	for i, each := range all.History {
		requests, owner := each.Ended.key()
		runTimes.Note(requests, owner, each.Seconds)
		median, spread := runTimes.Estimate(each.Asked.key())
		if !isClose(median, each.Median) || !isClose(spread, each.Spread) {
			t.Fatalf("pod %d: %v and %v, not %v and %v", i, median, spread, each.Median, each.Spread)
		}
	}
	if len(all.History) != 400 {
		t.Errorf("%d cases", len(all.History))
	}
}
