package steersman

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
)

// TestConfigurationsOfDeploy holds deploy/kube-scheduler to what kube-scheduler and the plugin take.
func TestConfigurationsOfDeploy(t *testing.T) {
	const folder = "../../../deploy/kube-scheduler"
	modes := map[string]string{
		"native.yaml": "native", "service.yaml": "service", "shadow.yaml": "shadow",
	}
	for file, mode := range modes {
		content, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			t.Fatal(err)
		}
		decoded, _, err := scheme.Codecs.UniversalDecoder().Decode(content, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		result := decoded.(*config.KubeSchedulerConfiguration)
		if err := validation.ValidateKubeSchedulerConfiguration(result); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		seen := 0
		for _, each := range result.Profiles[0].PluginConfig {
			if each.Name != Name {
				continue
			}
			seen++
			if args, err := parseArgs(each.Args); err != nil || args.Mode != mode {
				t.Errorf("%s: %+v, %v", file, args, err)
			}
		}
		if seen != 1 {
			t.Errorf("%s configures the plugin %d times", file, seen)
		}
	}
}
