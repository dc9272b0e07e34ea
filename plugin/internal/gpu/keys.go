// Package gpu is what a scheduler must know of GPUs that pods share: what pods request by annotations, what nodes
// offer, and what is left of each device.
//
// A device is counted in milli: 1000 is a whole one. The rules are those of steersman's own scheduler
// (src/steersman/cluster/objects/decoding.py and kubernetes/cache/cluster_cache.py), so that both count the same on the
// same cluster.
//
// What a pod holds is in its annotation IndexKey, which it gets in the same write as its node. Between a decision and
// the moment at which the API server's word of it arrives, only the Ledger knows.
package gpu

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

const (
	// CountKey is how many devices a pod requests, as its annotation, or a node has, among its resources.
	CountKey = "alibabacloud.com/gpu-count"
	// MilliKey is the milli of each device that a pod requests, or those of all devices of a node.
	MilliKey = "alibabacloud.com/gpu-milli"
	// ModelKey is the models that a pod may run on, as its annotation "A|B", or the label of a node.
	ModelKey = "alibabacloud.com/gpu-card-model"
	// IndexKey is the annotation of the devices that a bound pod holds: "2-3-4".
	IndexKey = "alibabacloud.com/gpu-index"

	// MaxCount is the most devices that a pod may request.
	MaxCount = 10_000
)

// pluginResource is whole devices that a device plugin offers.
type pluginResource struct {
	name  v1.ResourceName
	label string // of a node, that may say their model; "" if there is none
}

// pluginResources are those that are known; src/steersman/cluster/model.py has the same, held by a test.
var pluginResources = [...]pluginResource{
	{"nvidia.com/gpu", "nvidia.com/gpu.product"},
	{"nvidia.com/gpu.shared", "nvidia.com/gpu.product"},
	{"amd.com/gpu", "amd.com/gpu.product-name"},
	{"gpu.intel.com/i915", "gpu.intel.com/product"},
	{"gpu.intel.com/xe", "gpu.intel.com/product"},
	{"habana.ai/gaudi", ""},
}

func isPlugin(name v1.ResourceName) bool {
	return slices.ContainsFunc(pluginResources[:], func(each pluginResource) bool { return each.name == name })
}

// ModelOf returns the model of the GPUs that a node offers under these names; "" if none is known. Labels of other
// vendors do not count, unless no vendor is among the names.
func ModelOf(node *v1.Node, names ...string) string {
	if model := node.Labels[ModelKey]; model != "" {
		return model
	}
	vendors := slices.ContainsFunc(names, func(name string) bool { return isPlugin(v1.ResourceName(name)) })
	for _, each := range pluginResources {
		model := node.Labels[each.label]
		if model != "" && each.label != "" && (!vendors || slices.Contains(names, string(each.name))) {
			return model
		}
	}
	return ""
}

func annotationError(key, format string, args ...any) error {
	return fmt.Errorf("metadata.annotations['%s']: "+format, append([]any{key}, args...)...)
}
