// Package native evaluates a policy file inside kube-scheduler.
//
// What a policy sees is made of the scheduler's own snapshot, all of it, by the rules of steersman's live scheduler
// (src/steersman/kubernetes/cache/cluster_cache.py): the same cluster gives the same scores there and here. Two things cannot be known here
// as they are there, and matter to networks that see the cluster (Traits.Pointwise is false) alone: how many pods wait
// since they fit nowhere is taken for none, and the share of nodes that a pod fits on is that of the nodes that
// kube-scheduler looked at, so that percentageOfNodesToScore should be 100 for them.
package native
