// Package gpu is what a scheduler must know of GPUs that pods share: what pods request by annotations, what nodes
// offer, and what is left of each device.
//
// A device is counted in milli: 1000 is a whole one. The rules are those of steersman's own scheduler
// (src/steersman/cluster/objects/decoding.py and kubernetes/cache/cluster_cache.py), so that both count the same on the same cluster.
//
// What a pod holds is in its annotation IndexKey, which it gets in the same write as its node. Between a decision and
// the moment at which the API server's word of it arrives, only the Ledger knows.
package gpu
