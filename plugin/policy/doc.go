// Package policy reads policy files of steersman and computes the scores that its Python side computes.
//
// A policy ranks the nodes that a pod fits on, from the state of the cluster as whole numbers: milli-CPU, bytes, pods,
// and milli of each GPU device (1000 is a whole one). Nothing here plans or learns. What follows from the mix of typical
// pods is baked into the file by "steersman policy prepare"; a file without it is refused.
//
// The arithmetic is that of the Python package, in the same order, so that scores agree to the last bits. Where a
// compiler might fuse a product with a sum, which rounds once instead of twice, a conversion to float64 forbids it.
//
// A Policy may be used by many goroutines at a time.
package policy
