package compat

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestDeletedObjectsWhoseDeletionWasMissed(t *testing.T) {
	pod := &v1.Pod{}
	for _, obj := range []any{pod, cache.DeletedFinalStateUnknown{Key: "default/pod", Obj: pod}} {
		if deleted, ok := Deleted[*v1.Pod](obj); !ok || deleted != pod {
			t.Errorf("%T: %v", obj, deleted)
		}
		if _, ok := Deleted[*v1.Node](obj); ok {
			t.Errorf("%T is taken for a node", obj)
		}
	}
}
