// Package compat has what the plugins use of kube-scheduler's framework, under one name for all supported minors of
// Kubernetes. Up to 1.34 the interfaces of plugins belong to k8s.io/kubernetes, later all of it to
// k8s.io/kube-scheduler.
package compat

import "k8s.io/client-go/tools/cache"

// OnDelete returns an informer's handler of deletions, also of those that it has missed.
func OnDelete[T any](handle func(T)) func(obj any) {
	return func(obj any) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if object, ok := obj.(T); ok {
			handle(object)
		}
	}
}
