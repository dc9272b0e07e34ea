package policy

import (
	"context"
	"math"
	"math/bits"
)

// fgd scores int(100 sigmoid((F_before - F_after) / 1000)), F the fragmented GPU milli of the node (fragmentation
// gradient descent): the least fragmentation added.
type fgd struct{ fragmenter }

// gradient is FGD's points, 0 to 100, for a change of fragmentation, both in GPU milli.
func gradient(before, after float64) int64 {
	return int64(100 * (1 / (1 + math.Exp(-(before-after)/1000))))
}

func (f *fgd) scores(ctx context.Context, state *State, pod *Pod, candidates []int, out []float64) error {
	return eachFitting(ctx, state, pod, candidates, out, func(node *Node) float64 {
		points, _ := f.best(node, pod)
		return float64(points)
	})
}

func (f *fgd) devices(node *Node, pod *Pod) uint64 {
	_, devices := f.best(node, pod)
	return devices
}

// best is the score of the node, and the devices of the pod there: of a share, the one that scores best.
func (f *fgd) best(node *Node, pod *Pod) (int64, uint64) {
	before := f.look(node)
	if pod.kind() != gpuShare {
		devices := node.bestDevices(pod)
		return gradient(before, f.with(node, pod, devices)), devices
	}
	best, chosen := int64(-1), uint64(0)
	for d, left := range node.GPUFree {
		if left < pod.GPUMilli || node.alikeBefore(d) {
			continue
		}
		if points := gradient(before, f.with(node, pod, 1<<d)); points > best {
			best, chosen = points, 1<<d
		}
	}
	return best, chosen
}

// first is the lowest index of a bit mask that is not empty.
func first(devices uint64) int { return bits.TrailingZeros64(devices) }
