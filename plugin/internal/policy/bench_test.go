package policy

import (
	"math/rand/v2"
	"testing"
)

// benchmarkNodes is as many nodes as the openb cluster has GPU nodes.
const benchmarkNodes = 1213

// busyCluster has nodes with two to eight GPUs, with shares of any size on some of them.
func busyCluster(nodes int) *State {
	random, state := rand.New(rand.NewPCG(1, 2)), &State{}
	for range nodes {
		cpu, memory := int64(96_000), int64(384<<30)
		node := Node{
			CPU:    Amount{cpu, random.Int64N(cpu/500) * 500},
			Memory: Amount{memory, random.Int64N(memory)},
			Pods:   Amount{110, 50},
		}
		for range []int{2, 4, 8}[random.IntN(3)] {
			node.GPU.Free = append(node.GPU.Free, []int64{1000, 0, 500, 190, 810, 250, random.Int64N(1001)}[random.IntN(7)])
		}
		state.Nodes = append(state.Nodes, node)
	}
	return state
}

// benchmarkScores measures a decision over a cluster of which some nodes change from one decision to the next.
func benchmarkScores(b *testing.B, policy *Policy, changes int) {
	state := busyCluster(benchmarkNodes)
	pods := []*Pod{
		{CPU: 4000, Memory: 8 << 30},
		{CPU: 3152, Memory: 16 << 30, GPU: GPURequest{Count: 1, Milli: 220}},
		{CPU: 8000, Memory: 24 << 30, GPU: GPURequest{Count: 1, Milli: 810}},
		{CPU: 11908, Memory: 24 << 30, GPU: GPURequest{Count: 1, Milli: Whole}},
	}
	candidates, out := make([]int, len(state.Nodes)), make([]float64, len(state.Nodes))
	for n := range candidates {
		candidates[n] = n
	}
	random := rand.New(rand.NewPCG(3, 4))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		for range changes {
			node := &state.Nodes[random.IntN(len(state.Nodes))]
			node.CPU.Free = random.Int64N(node.CPU.Allocatable)
		}
		if err := policy.Scores(b.Context(), state, pods[i%len(pods)], candidates, out); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(candidates)), "ns/node")
}

func BenchmarkScores(b *testing.B) {
	for _, name := range []string{"steersman-default", "mlp", "cluster-mlp"} {
		policy := packedPolicy(b, name)
		b.Run(name+"/one-change", func(b *testing.B) { benchmarkScores(b, policy, 1) })
		b.Run(name+"/all-change", func(b *testing.B) { benchmarkScores(b, policy, benchmarkNodes) })
	}
	fgd, err := Builtin(FGD, packedPolicy(b, "steersman-default").Profile)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("fgd", func(b *testing.B) { benchmarkScores(b, fgd, 1) })
}
