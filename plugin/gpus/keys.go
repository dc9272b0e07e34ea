package gpus

import (
	v1 "k8s.io/api/core/v1"

	"steersman.dev/plugin/policy"
)

const (
	// CountKey is how many devices a pod asks for, as its annotation, or a node has, among its resources.
	CountKey = "alibabacloud.com/gpu-count"
	// MilliKey is the milli of each device that a pod asks for, or those of all devices of a node.
	MilliKey = "alibabacloud.com/gpu-milli"
	// ModelKey is the models that a pod may run on, as its annotation "A|B", or the label of a node.
	ModelKey = "alibabacloud.com/gpu-card-model"
	// IndexKey is the annotation of the devices that a bound pod holds: "2-3-4".
	IndexKey = "alibabacloud.com/gpu-index"

	// MaxCount is the most devices that a pod may ask for.
	MaxCount = 10_000

	whole = policy.Whole
)

// pluginResources are whole devices that device plugins offer.
var pluginResources = [...]v1.ResourceName{"nvidia.com/gpu", "amd.com/gpu"}

// modelLabels are the labels of a node that may say its GPUs' model; the first that is there does.
var modelLabels = [...]string{ModelKey, "nvidia.com/gpu.product", "amd.com/gpu.product-name"}

// FieldError says what is wrong with a field of an object, and what would be right.
type FieldError struct{ Field, Problem string }

// Error is one line.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

func annotationError(key, problem string) error {
	return &FieldError{"metadata.annotations['" + key + "']", problem}
}
