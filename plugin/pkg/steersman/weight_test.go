package steersman

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"steersman.dev/plugin/internal/compat"
	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/scoring"
)

// preferences are kube-scheduler's own plugins that score by what a pod's or a node's owner wrote down as a preference:
// PreferNoSchedule, preferred affinities, spreading.
var preferences = []string{names.TaintToleration, names.NodeAffinity, names.PodTopologySpread, names.InterPodAffinity}

// weightsOf are the weights of a configuration's first profile, after kube-scheduler's own defaults were put in.
func weightsOf(t *testing.T, file string) map[string]int64 {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../../deploy/kube-scheduler", file))
	if err != nil {
		t.Fatal(err)
	}
	decoded, _, err := scheme.Codecs.UniversalDecoder().Decode(content, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	result := map[string]int64{}
	plugins := decoded.(*config.KubeSchedulerConfiguration).Profiles[0].Plugins
	for _, each := range slices.Concat(plugins.MultiPoint.Enabled, plugins.Score.Enabled) {
		result[each.Name] = int64(each.Weight)
	}
	return result
}

// TestWhichWeightDecidesInTheShippedProfiles computes it from kube-scheduler's defaults: for pods with GPUs one point of
// the policy is more than all others together, for other pods all of its points are less than any one preference.
func TestWhichWeightDecidesInTheShippedProfiles(t *testing.T) {
	for _, file := range []string{"native.yaml", "service.yaml"} {
		weights := weightsOf(t, file)
		ours, more := weights[Name], weights[WeightName]
		others := int64(0) // those without a score have the weight 0 in the defaults
		for name, weight := range weights {
			if name != Name && name != WeightName {
				others += weight * scoring.Best
			}
		}
		if others == 0 {
			t.Fatalf("%s: kube-scheduler's defaults are missing: %v", file, weights)
		}
		if ours+more <= others {
			t.Errorf("%s: with GPUs, a point of the policy counts %d, and all others %d", file, ours+more, others)
		}
		for _, name := range preferences {
			if most := weights[name] * scoring.Best; ours == 0 || ours*scoring.Best >= most {
				t.Errorf("%s: without GPUs, the policy counts %d, and %s %d", file, ours*scoring.Best, name, most)
			}
		}
	}
}

// TestThePolicyDecidesForPodsWithGPUs adds up what the framework would: the policy requests one node, a preference another.
func TestThePolicyDecidesForPodsWithGPUs(t *testing.T) {
	weights, nodes := weightsOf(t, "native.yaml"), nodesOf(2)
	sharing, whole, nonsense := podOf("1"), podOf("1"), podOf("1")
	sharing.Annotations = map[string]string{gpu.CountKey: "1", gpu.MilliKey: "100"}
	whole.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = *whole.Spec.Containers[0].Resources.Requests.Cpu()
	nonsense.Annotations = map[string]string{gpu.CountKey: "many"}
	for name, test := range map[string]struct {
		pod    *v1.Pod
		wanted bool // the policy's node, and not the preferred one, has the higher total
	}{
		"plain": {podOf("1"), false}, "nonsense": {nonsense, false}, "sharing": {sharing, true}, "whole": {whole, true},
	} {
		state := framework.NewCycleState()
		state.Write(stateKey, &scoreResult{nodes: nodes, scores: []int64{100, 99}})
		totals := []int64{0, 0}
		for _, each := range preferences {
			totals[1] += weights[each] * scoring.Best
		}
		for _, each := range []compat.ScorePlugin{&Plugin{}, &Weight{}} {
			if first, ok := each.(*Weight); ok && first.PreScore(t.Context(), state, test.pod, nodes).IsSkip() {
				continue
			}
			out := compat.NodeScoreList{{Name: "node-0"}, {Name: "node-1"}}
			if status := each.ScoreExtensions().NormalizeScore(t.Context(), state, test.pod, out); !status.IsSuccess() {
				t.Fatal(status)
			}
			for n := range totals {
				totals[n] += weights[each.Name()] * out[n].Score
			}
		}
		if (totals[0] > totals[1]) != test.wanted {
			t.Errorf("%s: %v", name, totals)
		}
	}
}

func TestTheWeightIsNeutralWithoutAnOpinion(t *testing.T) {
	made, err := NewWeight(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	weight := made.(*Weight)
	out := compat.NodeScoreList{{Name: "node-0", Score: 50}}
	if status := weight.NormalizeScore(t.Context(), framework.NewCycleState(), podOf("1"), out); !status.IsSuccess() || out[0].Score != 50 {
		t.Error(status, out)
	}
	if fragments, status := weight.SignPod(t.Context(), podOf("1")); !status.IsSuccess() || len(fragments) > 0 {
		t.Error(status, fragments)
	}
}
