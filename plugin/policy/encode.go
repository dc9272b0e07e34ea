package policy

import "math"

// Features are in single precision, as they are on the Python side. Source: policies/encoding.py.

const (
	podFeatures     = 11 // of a pod, the same in all views; the first four are its kind
	contextFeatures = 10 // of the cluster, the same in all views
	sharedFeatures  = podFeatures + contextFeatures

	gib = 1 << 30
	tib = 1 << 40
)

// single rounds to single precision.
func single(x float64) float64 { return float64(float32(x)) }

// part is a share in [0, 1]; 0 of nothing. What is free may be below zero on a node that shrank.
func part(amount, total float64) float64 {
	if total <= 0 {
		return 0
	}
	return single(min(max(amount/total, 0), 1))
}

// units is an amount in [0, 8] units.
func units(amount, unit float64) float64 { return single(min(max(amount/unit, 0), 8)) }

// encodePod writes the features of a pod of whose owner so many pods run.
func encodePod(pod *Pod, running int, out []float64) {
	cores, memory := float64(pod.CPU)/1000, float64(pod.Memory)/gib
	clear(out)
	out[pod.kind()] = 1
	out[4] = units(cores, 32)
	out[5] = single(min(math.Log2(1+cores)/7, 2))
	out[6] = units(memory, 256)
	out[7] = single(min(math.Log2(1+memory)/10, 2))
	out[8] = units(float64(pod.GPUCount), 8)
	out[9] = single(float64(pod.GPUMilli) / Whole)
	out[10] = single(float64(running) / float64(running+8))
}

// clusterView writes features of nodes in the view cluster.
type clusterView struct {
	fragmenter
	before []float64 // by node, fragmented GPU milli
	mean   float32   // over nodes, of the share of CPU in use
	owner  *owner
}

// Columns that do not depend on the node alone.
const (
	clusterOwn  = 22 // columns of the node alone, which come first
	clusterNode = 28
)

// encode writes the features of a node; fit tells whether the pod has room on it.
func (v *clusterView) encode(state *State, n int, pod *Pod, fit bool, out []float64) {
	node := &state.Nodes[n]
	clear(out)
	cpu, memory, pods := node.CPU.Free, node.Memory.Free, node.Pods.Free
	if fit {
		cpu, memory, pods = cpu-pod.CPU, memory-pod.Memory, pods-1
	}
	out[0] = part(float64(node.CPU.Free), float64(node.CPU.Allocatable))
	out[1] = part(float64(cpu), float64(node.CPU.Allocatable))
	out[2] = part(float64(node.Memory.Free), float64(node.Memory.Allocatable))
	out[3] = part(float64(memory), float64(node.Memory.Allocatable))
	out[4] = part(float64(node.Pods.Free), float64(node.Pods.Allocatable))
	out[5] = part(float64(pods), float64(node.Pods.Allocatable))
	out[8] = units(float64(cpu), 128_000)
	out[9] = units(float64(memory), tib)
	if node.Pods.Free == node.Pods.Allocatable {
		out[19] = 1
	}
	v.encodeShared(node, n, out)
	if len(node.GPUFree) > 0 {
		v.encodeGPUs(node, v.before[n], pod, fit, out)
	} else if fit {
		out[18] = 0.5 // FGD's score where nothing changes: sigmoid(0)
	}
}

func (v *clusterView) encodeGPUs(node *Node, before float64, pod *Pod, fit bool, out []float64) {
	var idle, wholeBefore, whole, partial, largest, taken int64
	var devices uint64
	after := before
	if fit {
		devices, taken = node.bestDevices(pod), node.taken(pod)*pod.GPUMilli
		v.look(node)
		after = v.with(node, pod, devices)
		out[18] = single(1 / (1 + math.Exp(-(before-after)/Whole)))
	}
	for d, left := range node.GPUFree {
		idle += left
		if left == Whole {
			wholeBefore++
		}
		if devices>>d&1 != 0 {
			left -= pod.GPUMilli
		}
		if left == Whole {
			whole++
		} else if left > 0 {
			partial++
			largest = max(largest, left)
		}
	}
	count := int64(len(node.GPUFree))
	out[6] = single(float64(idle) / float64(Whole*count))
	out[7] = single(float64(idle-taken) / float64(Whole*count))
	out[10] = units(float64(idle-taken), 8*Whole)
	out[11] = units(float64(count), 8)
	out[12] = units(float64(wholeBefore), 8)
	out[13] = units(float64(whole), 8)
	out[14] = units(float64(partial), 8)
	out[15] = single(float64(largest) / Whole)
	out[16] = units(before, 8*Whole)
	out[17] = units(after, 8*Whole)
	if wholeBefore == count {
		out[20] = 1
	}
	if whole == count {
		out[21] = 1
	}
}

// encodeShared writes what depends on the rest of the cluster, in single precision throughout.
func (v *clusterView) encodeShared(node *Node, n int, out []float64) {
	if node.CPU.Allocatable > 0 {
		before, after := 1-float32(out[0])-v.mean, 1-float32(out[1])-v.mean
		out[22], out[23] = float64(before), float64(after)
		out[24], out[25] = float64(before*before), float64(after*after)
	}
	if v.owner.running > 0 {
		out[26] = single(float64(v.owner.onNode[n]) / float64(v.owner.running))
		if node.Rack != "" {
			out[27] = single(float64(v.owner.inRack[node.Rack]) / float64(v.owner.running))
		}
	}
}

// gpuView writes features of nodes in the view gpu, on the devices of the best-fit rule; 0 where the pod has no room.
type gpuView struct{ states *states }

func (v *gpuView) encode(state *State, n int, pod *Pod, fit bool, out []float64) {
	clear(out)
	if !fit {
		return
	}
	node := &state.Nodes[n]
	before := v.states.look(node)
	after := v.states.with(node, pod, node.bestDevices(pod))
	for i, x := range after.row {
		low, high := bounds(i)
		out[i] = float64(min(max(x, low), high))
		out[features+i] = float64(min(max(x-before.row[i], -high), high))
	}
	out[2*features] = float64(gradient(before.fragmented, after.fragmented))
}

// bounds are the lowest and the highest value of a feature of a state; changes go from -highest to highest.
func bounds(feature int) (float32, float32) {
	switch {
	case feature == fAllWhole || feature == fUntouched || feature >= fFit && feature < fUsable:
		return 0, 1
	case feature == fUsable || feature == fProducts+8:
		return 0, 8
	case feature == fCPULeft || feature == fFilled+2 || feature == fFilled+5:
		return -1, 1024
	case feature == fCPUShort || feature == fCPUSpare || feature == fProducts || feature == fProducts+1:
		return 0, 1024
	case feature == fProducts+2 || feature == fProducts+5 || feature == fProducts+6:
		return 0, 1 << 20
	case feature == fProducts+3 || feature == fProducts+4 || feature == fProducts+7:
		return -64, 1 << 16
	case feature == fTable+4:
		return -64, 64
	default:
		return 0, 64
	}
}
