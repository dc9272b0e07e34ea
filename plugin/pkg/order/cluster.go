package order

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/orders"
)

// clusterSize is what nodes have, or pods on them request: whole numbers, so that sums do not drift.
type clusterSize struct{ gpuMilli, cpuMilli, memory int64 }

func (s clusterSize) plus(other clusterSize, sign int64) clusterSize {
	return clusterSize{
		s.gpuMilli + sign*other.gpuMilli, s.cpuMilli + sign*other.cpuMilli, s.memory + sign*other.memory,
	}
}

// capacity returns the size of a cluster: GPUs, or CPUs where no node has a GPU.
func (s clusterSize) capacity() float64 {
	if s.gpuMilli > 0 {
		return float64(s.gpuMilli) / gpu.Whole
	}
	return s.cpus()
}

func (s clusterSize) cpus() float64 { return max(float64(s.cpuMilli)/1000, 1e-3) }

// of returns the size of a pod: the largest share of the cluster that it requests, times the cluster's size.
func (s clusterSize) of(requests orders.Requests) float64 {
	cpu := float64(requests.MilliCPU) / 1000
	memory := float64(requests.Memory) / max(float64(s.memory), 1) * s.capacity()
	if s.gpuMilli == 0 {
		return max(cpu, memory)
	}
	gpus := float64(requests.GPUs*requests.GPUMilli) / gpu.Whole
	return max(gpus, cpu/s.cpus()*s.capacity(), memory)
}

// cluster is what nodes have together and what is free of it, updated by events. Several goroutines may use it.
type cluster struct {
	mutex      sync.Mutex
	nodes      map[string]clusterSize
	bound      map[types.UID]boundPod
	size, used clusterSize
}

type boundPod struct {
	size clusterSize
	seen time.Time // when it was seen there first
}

func newCluster() *cluster {
	return &cluster{nodes: map[string]clusterSize{}, bound: map[types.UID]boundPod{}}
}

func (c *cluster) look() (size clusterSize, free float64) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	used := float64(c.used.cpuMilli) / 1000
	if c.size.gpuMilli > 0 {
		used = float64(c.used.gpuMilli) / gpu.Whole
	}
	return c.size, 1 - used/c.size.capacity()
}

// setNode counts what a node has, nil if it is gone.
func (c *cluster) setNode(name string, node *v1.Node) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.size = c.size.plus(c.nodes[name], -1)
	delete(c.nodes, name)
	if node != nil {
		c.nodes[name] = sizeOfNode(node)
		c.size = c.size.plus(c.nodes[name], 1)
	}
}

func sizeOfNode(node *v1.Node) clusterSize {
	all := node.Status.Allocatable
	size := clusterSize{cpuMilli: all.Cpu().MilliValue(), memory: all.Memory().Value()}
	if devices, err := gpu.CapacityOf(node); err == nil {
		gpus := int64(len(devices.Free))
		for _, each := range devices.Counted {
			gpus += each.Free
		}
		size.gpuMilli = gpus * gpu.Whole
	}
	return size
}

func (c *cluster) holds(uid types.UID) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	_, known := c.bound[uid]
	return known
}

func (c *cluster) bind(uid types.UID, requests orders.Requests, now time.Time) {
	size := clusterSize{requests.GPUs * requests.GPUMilli, requests.MilliCPU, requests.Memory}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, known := c.bound[uid]; !known {
		c.bound[uid] = boundPod{size, now}
		c.used = c.used.plus(size, 1)
	}
}

// release counts a pod no more, and returns when it was seen on its node first; false if it never was.
func (c *cluster) release(uid types.UID) (time.Time, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	pod, known := c.bound[uid]
	if known {
		delete(c.bound, uid)
		c.used = c.used.plus(pod.size, -1)
	}
	return pod.seen, known
}
