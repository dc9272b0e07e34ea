package remote

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"steersman.dev/plugin/internal/gpu"
)

// annotations are those that scores depend on; src/steersman/cluster/objects/decoding.py and latency.py read them.
var annotations = append([]string{
	gpu.CountKey, gpu.MilliKey, gpu.ModelKey, gpu.IndexKey,
	"alibabacloud.com/creation-time", "alibabacloud.com/deletion-time", "steersman.dev/owner",
	"steersman.dev/latency-user",
}, LimitKeys...)

// stripPod returns what scores depend on of a pod: its labels, owners, requests and constraints, the images' names, and
// some annotations. Everything else stays here: environment variables, commands, volumes, names of secrets. The pod
// itself stays as it is.
//
// It names what is sent, so that a field that Kubernetes adds is not.
func stripPod(pod *v1.Pod) *v1.Pod {
	spec := &pod.Spec
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            pod.Name,
			Namespace:       pod.Namespace,
			UID:             pod.UID,
			Labels:          pod.Labels,
			Annotations:     scored(pod.Annotations),
			OwnerReferences: pod.OwnerReferences,
		},
		Spec: v1.PodSpec{
			Containers:                containers(spec.Containers),
			InitContainers:            containers(spec.InitContainers),
			Overhead:                  spec.Overhead,
			Resources:                 requirements(spec.Resources),
			NodeName:                  spec.NodeName,
			NodeSelector:              spec.NodeSelector,
			Affinity:                  spec.Affinity,
			Tolerations:               spec.Tolerations,
			TopologySpreadConstraints: spec.TopologySpreadConstraints,
			HostNetwork:               spec.HostNetwork,
			SchedulerName:             spec.SchedulerName,
			PriorityClassName:         spec.PriorityClassName,
			Priority:                  spec.Priority,
		},
	}
}

// containers returns the requests, ports and images of containers, under no name of theirs.
func containers(all []v1.Container) []v1.Container {
	sent := make([]v1.Container, len(all))
	for i := range all {
		each := &all[i]
		sent[i] = v1.Container{
			Image: each.Image, Resources: *requirements(&each.Resources), Ports: each.Ports, RestartPolicy: each.RestartPolicy,
		}
	}
	return sent
}

func requirements(all *v1.ResourceRequirements) *v1.ResourceRequirements {
	if all == nil {
		return nil
	}
	return &v1.ResourceRequirements{Requests: all.Requests, Limits: all.Limits}
}

func scored(all map[string]string) map[string]string {
	sent := map[string]string{}
	for _, key := range annotations {
		if value, ok := all[key]; ok {
			sent[key] = value
		}
	}
	return sent
}
