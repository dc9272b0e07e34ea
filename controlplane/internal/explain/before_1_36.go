//go:build before1.36

package explain

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// toSchedule is what a scheduling cycle takes of a pod.
func toSchedule(info *framework.PodInfo) *v1.Pod { return info.Pod }
