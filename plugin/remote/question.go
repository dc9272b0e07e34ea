package remote

import (
	"bytes"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// applied is the annotation in which kubectl keeps a second copy of the object.
const applied = v1.LastAppliedConfigAnnotation

// essence is a pod without what no policy looks at and what would be most of its bytes: who manages which field, what
// kubectl applied, and the status. The pod itself stays as it is.
func essence(pod *v1.Pod) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            pod.Name,
			Namespace:       pod.Namespace,
			UID:             pod.UID,
			Labels:          pod.Labels,
			Annotations:     withoutApplied(pod.Annotations),
			OwnerReferences: pod.OwnerReferences,
		},
		Spec: pod.Spec,
	}
}

func withoutApplied(annotations map[string]string) map[string]string {
	if _, there := annotations[applied]; !there {
		return annotations
	}
	kept := make(map[string]string, len(annotations)-1)
	for key, value := range annotations {
		if key != applied {
			kept[key] = value
		}
	}
	return kept
}

// question is the body of a request about a pod, which is JSON.
func (p *part) question(pod []byte) []byte {
	field, nodes := `,"nodeSet":`, p.version
	if nodes == nil {
		field, nodes = `,"nodes":`, p.names
	}
	return bytes.Join([][]byte{[]byte(`{"pod":`), pod, []byte(field), nodes, []byte(`,"among":`), p.among, {'}'}}, nil)
}
