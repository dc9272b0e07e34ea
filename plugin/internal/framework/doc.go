// Package framework has what the plugins use of kube-scheduler's framework, under one name for all supported minors of
// Kubernetes. Up to 1.34 the interfaces of plugins belong to k8s.io/kubernetes, later all of it to k8s.io/kube-scheduler.
package framework
