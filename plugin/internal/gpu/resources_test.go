package gpu

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// TestBothLanguagesHaveTheSameNames holds the names to those that the Python side is held to, too.
func TestBothLanguagesHaveTheSameNames(t *testing.T) {
	content, err := os.ReadFile("../../../tests/contract/data/gpu_resources.json")
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Shared     string      `json:"shared"`
		ModelLabel string      `json:"model_label"`
		Plugins    [][2]string `json:"plugins"`
	}
	if err := json.Unmarshal(content, &said); err != nil {
		t.Fatal(err)
	}
	var ours [][2]string
	for _, each := range pluginResources {
		ours = append(ours, [2]string{string(each.name), each.label})
	}
	if said.Shared != CountKey || said.ModelLabel != ModelKey || !reflect.DeepEqual(said.Plugins, ours) {
		t.Errorf("%v; want %v", ours, said)
	}
}

// TestPodsGetWhatTheyAskFor counts pods of two vendors and of annotations on a node that offers all of it.
func TestPodsGetWhatTheyAskFor(t *testing.T) {
	info := framework.NewNodeInfo(
		bound("a", nil, "nvidia.com/gpu", "70"), bound("b", nil, "amd.com/gpu", "1"),
		bound("c", notes("1", "300", "", "1")), bound("d", nil, "gpu.intel.com/i915", "2"))
	info.SetNode(offering("nvidia.com/gpu", "80", CountKey, "4", "amd.com/gpu", "4"))
	state := (&Ledger{}).NodeState(info)
	want := Node{
		GPUs: GPUs{
			Model: "V100", Resources: []string{CountKey, "amd.com/gpu"}, Free: []int64{0, 700, 1000, 1000},
			Counted: []Counted{{Resource: "nvidia.com/gpu", Model: "V100", Free: 10}}, Pods: []int64{1, 1, 1},
		},
		Sharing: 1, Plugged: 2,
	}
	if !reflect.DeepEqual(state, want) {
		t.Errorf("%+v; want %+v", state, want)
	}
	for _, test := range []struct {
		request Request
		fits    bool
	}{
		{Request{Count: 10, Milli: 1000, Resource: "nvidia.com/gpu"}, true},
		{Request{Count: 11, Milli: 1000, Resource: "nvidia.com/gpu"}, false},
		{Request{Count: 2, Milli: 1000, Resource: "amd.com/gpu"}, true},
		{Request{Count: 3, Milli: 1000, Resource: "amd.com/gpu"}, false},
		{Request{Count: 1, Milli: 700, Resource: CountKey}, true},
		{Request{Count: 1, Milli: 1000, Resource: "gpu.intel.com/i915"}, false},
	} {
		if fits := state.Fits(&test.request); fits != test.fits {
			t.Errorf("%+v: %v", test.request, fits)
		}
	}
}
