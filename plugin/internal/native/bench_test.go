package native

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/internal/gpu"
)

// plainNode has so many GPUs that pods share.
func plainNode(name string, gpuCount int) *v1.Node {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU:    resource.MustParse("64"),
		v1.ResourceMemory: resource.MustParse("256Gi"),
		v1.ResourcePods:   resource.MustParse("110"),
	}
	if gpuCount > 0 {
		node.Status.Allocatable[gpu.CountKey] = *resource.NewQuantity(int64(gpuCount), resource.DecimalSI)
	}
	return node
}

// plainPod requests CPU and memory, and for milli of a GPU if it is not 0.
func plainPod(name string, cpuMilli, gpuMilli int64) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(cpuMilli, resource.DecimalSI),
		v1.ResourceMemory: resource.MustParse("1Gi"),
	}}}}
	if gpuMilli > 0 {
		pod.Annotations = map[string]string{gpu.CountKey: "1", gpu.MilliKey: fmt.Sprint(gpuMilli)}
	}
	return pod
}

var logger = klog.Background()

func randomPod(random *rand.Rand, name string) *v1.Pod {
	share := []int64{0, 190, 500, 810}[random.IntN(4)]
	return plainPod(name, 500*int64(1+random.IntN(6)), share)
}

func plainNodes(count, gpuCount int) list {
	result := list{}
	for n := range count {
		info := framework.NewNodeInfo()
		info.SetNode(plainNode(fmt.Sprintf("node-%d", n), gpuCount))
		result = append(result, info)
	}
	return result
}

// benchmarkScores decides on pods of twenty classes, of which each one is then put on its node, as a scheduler would that
// looks at some of 1,000 nodes.
func benchmarkScores(b *testing.B, name, local string, gpuCount int, share int64) {
	nodes := plainNodes(1000, gpuCount)
	source := sourceOf(b, name, local, &nodes)
	out, looked := make([]int64, 420), []fwk.NodeInfo(nil)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		begin := i * len(out) % len(nodes)
		looked = append(append(looked[:0], nodes[begin:min(begin+len(out), len(nodes))]...), nodes[:max(0, begin+len(out)-len(nodes))]...)
		pod := plainPod(fmt.Sprintf("pod-%d", i), 100*int64(1+i%20), share)
		if err := source.Scores(b.Context(), pod, looked, out); err != nil {
			b.Fatal(err)
		}
		for at, score := range out {
			if score == 100 {
				looked[at].(*framework.NodeInfo).AddPod(pod)
				if len(looked[at].GetPods()) > 40 {
					empty := framework.NewNodeInfo()
					empty.SetNode(looked[at].Node())
					*looked[at].(*framework.NodeInfo) = *empty
				}
			}
		}
	}
}

func BenchmarkScores(b *testing.B) {
	for _, each := range []struct {
		name, policy, local string
		gpuCount            int
		share               int64
	}{
		{"shipped", "steersman-default", "", 4, 100},
		{"shipped-without-gpus", "steersman-default", "", 0, 0},
		{"fgd", "steersman-default", "fgd", 4, 100},
		{"best-fit", "steersman-default", "best-fit", 0, 0},
		{"mlp", "mlp", "", 4, 100},
		{"cluster-mlp", "cluster-mlp", "", 4, 0},
		{"cluster-deepsets", "cluster-deepsets", "", 4, 0},
	} {
		b.Run(each.name, func(b *testing.B) { benchmarkScores(b, each.policy, each.local, each.gpuCount, each.share) })
	}
}

// BenchmarkNodes measures the score of a node of a busy cluster, as many as the openb cluster has GPU nodes, by a class
// that the core does not know.
func BenchmarkNodes(b *testing.B) {
	const count = 1213
	for _, each := range []struct{ name, policy, local string }{
		{"shipped", "steersman-default", ""}, {"fgd", "steersman-default", FGD}, {"mlp", "mlp", ""}, {"cluster-mlp", "cluster-mlp", ""},
	} {
		for _, changes := range []int{1, count} {
			b.Run(fmt.Sprintf("%s-%d-changes", each.name, changes), func(b *testing.B) {
				policy, err := readPolicy(each.local, policyFile(b, each.policy))
				if err != nil {
					b.Fatal(err)
				}
				random := rand.New(rand.NewPCG(1, 2))
				c := &cluster{policy: policy, nodes: make([]node, count)}
				if !policy.Pointwise {
					c.owners = newOwners(count)
				}
				for n := range c.nodes {
					c.nodes[n] = busyNode(random)
				}
				pods := []Pod{
					{CPU: 4000, Memory: 8 << 30},
					{CPU: 3152, Memory: 16 << 30, GPU: gpu.Request{Count: 1, Milli: 220}},
					{CPU: 8000, Memory: 24 << 30, GPU: gpu.Request{Count: 1, Milli: 810}},
					{CPU: 11908, Memory: 24 << 30, GPU: gpu.Request{Count: 1, Milli: gpu.Whole}},
				}
				for i := 0; b.Loop(); i++ {
					c.classes = classes{numbers: map[class]int{}}
					for range changes {
						n := random.IntN(count)
						now := c.nodes[n]
						now.free[cpu] = random.Int64N(now.allocatable[cpu])
						c.set(n, now)
					}
					if _, err := c.scores(question{class: class{Pod: pods[i%len(pods)]}}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/node")
			})
		}
	}
}

// busyNode has two to eight GPUs, with shares of any size on some of them.
func busyNode(random *rand.Rand) node {
	all := [counted]int64{cpu: 96_000, memory: 384 << 30, pods: 110}
	result := node{allocatable: all, free: all}
	result.free[cpu], result.free[memory], result.free[pods] = random.Int64N(all[cpu]/500)*500, random.Int64N(all[memory]), 50
	for range []int{2, 4, 8}[random.IntN(3)] {
		left := []int64{1000, 0, 500, 190, 810, 250, random.Int64N(1001)}[random.IntN(7)]
		result.gpus.Free = append(result.gpus.Free, left)
	}
	return result
}
