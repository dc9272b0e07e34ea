// Package podowner says whose a pod is.
package podowner

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// key is an annotation for the owner of a pod without a controller, "Kind/name".
const key = "steersman.dev/owner"

// Owner identifies the controller of a pod. Name is "" where the pod has none.
type Owner struct{ Namespace, Name string }

// Of returns the controller of a pod, or whom an annotation names.
func Of(pod *v1.Pod) Owner {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return Owner{pod.Namespace, controller.Kind + "/" + controller.Name}
	}
	return Owner{pod.Namespace, pod.Annotations[key]}
}
