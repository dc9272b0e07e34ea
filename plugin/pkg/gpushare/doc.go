// Package gpushare is the plugin SteersmanGpuShare of kube-scheduler: pods that share GPUs by annotations.
//
// It filters the nodes that have the devices, chooses devices when a node is chosen, and binds. The devices are written
// to the pod by the binding itself: the API server merges a Binding's annotations into the pod in the same write, so that
// a pod never has a node without its devices or the other way round. A patch before the binding would be another
// request, and needs a right to patch pods that kube-scheduler does not have.
//
// A profile must enable it at multiPoint and at bind, so that it comes before DefaultBinder, to which it leaves all pods
// without GPUs:
//
//	plugins:
//	  multiPoint: {enabled: [{name: SteersmanGpuShare}]}
//	  bind: {enabled: [{name: SteersmanGpuShare}]}
//
// Where a profile lacks the latter, pods that share GPUs stay unschedulable, and their events say why.
package gpushare
