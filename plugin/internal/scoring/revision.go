package scoring

import (
	v1 "k8s.io/api/core/v1"

	fwk "steersman.dev/plugin/internal/framework"
)

// Revision tells states of a node of the snapshot apart: two that are equal are of the same state. The zero value is of
// none.
//
// The generation alone does not: while kube-scheduler tries a pod group, it adds each member that found a node to the
// snapshot, and leaves the node's generation as it was (Snapshot.AssumePod). A member is added as the last pod of its
// node and is an object of its own, so the number of pods and the last one tell.
type Revision struct {
	generation int64
	pods       int
	last       *v1.Pod
	known      bool
}

// RevisionOf returns the revision of a node as it is now.
func RevisionOf(info fwk.NodeInfo) Revision {
	revision := Revision{generation: info.GetGeneration(), known: true}
	if pods := info.GetPods(); len(pods) > 0 {
		revision.pods, revision.last = len(pods), pods[len(pods)-1].GetPod()
	}
	return revision
}
