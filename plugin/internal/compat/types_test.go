package compat

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestDeletedObjectsWhoseDeletionWasMissed(t *testing.T) {
	pod := &v1.Pod{}
	for _, obj := range []any{pod, cache.DeletedFinalStateUnknown{Key: "default/pod", Obj: pod}} {
		var deleted *v1.Pod
		OnDelete(func(pod *v1.Pod) { deleted = pod })(obj)
		if deleted != pod {
			t.Errorf("%T: %v", obj, deleted)
		}
		OnDelete(func(*v1.Node) { t.Errorf("%T is taken for a node", obj) })(obj)
	}
}
