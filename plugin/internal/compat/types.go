// Package compat has what the plugins use of kube-scheduler's framework, under one name for all supported minors of
// Kubernetes. Up to 1.34 the interfaces of plugins belong to k8s.io/kubernetes, later all of it to k8s.io/kube-scheduler.
package compat

import "k8s.io/client-go/tools/cache"

// Deleted returns an object that an informer says was deleted; false if it is of another type.
func Deleted[T any](obj any) (T, bool) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	object, ok := obj.(T)
	return object, ok
}
