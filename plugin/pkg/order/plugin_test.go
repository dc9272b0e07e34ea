package order

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	testingclock "k8s.io/utils/clock/testing"

	"steersman.dev/plugin/internal/compat"
	"steersman.dev/plugin/internal/orders"
	"steersman.dev/plugin/internal/podowner"
)

// handle is as much of a framework as the plugin needs.
type handle struct {
	compat.Handle
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
}

func (h *handle) ClientSet() kubernetes.Interface { return h.client }

func (h *handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h *handle) ProfileName() string                                    { return "here" }

// start is when the clocks of tests begin.
var start = time.Unix(1_700_000_000, 0)

// plugin is one of an order, alone with its clock.
func plugin(t testing.TB, spec string) (*Plugin, *testingclock.FakeClock) {
	t.Helper()
	order, err := orders.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	clock := testingclock.NewFakeClock(start)
	made := &Plugin{order: order}
	if order.Kind != orders.Age {
		made.queue = newQueue(order, clock.Now)
		made.queue.cluster.setNode("node", node(100, 0))
	}
	return made, clock
}

func node(cpus, gpus int64) *v1.Node {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	node.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI), v1.ResourceMemory: resource.MustParse("1Ti"),
	}
	if gpus > 0 {
		node.Status.Allocatable["nvidia.com/gpu"] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	return node
}

// pod requests so many CPUs and states so many seconds, 0: it does not.
func pod(name string, cpus int64, seconds float64) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	pod.Spec.SchedulerName = "here"
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		v1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI),
	}}}}
	if seconds > 0 {
		pod.Annotations = map[string]string{secondsKey: fmt.Sprint(seconds)}
	}
	return pod
}

// queued is a pod as the queue has it.
func queued(t testing.TB, pod *v1.Pod, since time.Time) *framework.QueuedPodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		t.Fatal(err)
	}
	result := &framework.QueuedPodInfo{PodInfo: info}
	result.Timestamp = since
	return result
}

func enter(t testing.TB, p *Plugin, pods ...*v1.Pod) {
	t.Helper()
	for _, each := range pods {
		if status := p.PreEnqueue(t.Context(), each); !status.IsSuccess() {
			t.Fatal(status)
		}
	}
}

func TestAgeIsPrioritySort(t *testing.T) {
	p, _ := plugin(t, "age")
	high, low := int32(10), int32(0)
	older, younger := pod("older", 1, 9), pod("younger", 1, 1)
	enter(t, p, younger, older)
	older.Spec.Priority, younger.Spec.Priority = &low, &low
	a, b := queued(t, older, start), queued(t, younger, start.Add(time.Second))
	if !p.Less(a, b) || p.Less(b, a) || p.Less(a, a) {
		t.Error("the older pod does not go first")
	}
	younger.Spec.Priority = &high
	if p.Less(a, b) || !p.Less(b, a) {
		t.Error("the pod of higher priority does not go first")
	}
}

func TestPriorityGoesBeforeScoreAndScoreBeforeAge(t *testing.T) {
	p, clock := plugin(t, "shortest")
	first, short, twin, urgent := pod("first", 1, 50), pod("short", 1, 5), pod("twin", 1, 50), pod("urgent", 1, 500)
	high := int32(1)
	urgent.Spec.Priority = &high
	for _, each := range []*v1.Pod{first, short, twin, urgent} {
		enter(t, p, each)
		clock.Step(time.Second)
	}
	want := []*v1.Pod{urgent, short, first, twin}
	for i, one := range want {
		for j, other := range want {
			// The time of the last attempt says the contrary, and does not count.
			a, b := queued(t, one, start.Add(-time.Duration(i))), queued(t, other, start.Add(-time.Duration(j)))
			if p.Less(a, b) != (i < j) {
				t.Errorf("%s before %s: %v", one.Name, other.Name, i >= j)
			}
		}
	}
}

func TestRankStaysUntilThePodEntersAgain(t *testing.T) {
	p, clock := plugin(t, "wfp3")
	long, short := pod("long", 1, 100), pod("short", 1, 10)
	enter(t, p, long)
	clock.Step(50 * time.Second)
	enter(t, p, short)
	clock.Step(time.Second)
	enter(t, p, long, short)
	a, b := queued(t, long, start), queued(t, short, start)
	if !p.Less(a, b) {
		t.Error("the pod that waited for long does not go first")
	}
	clock.Step(49 * time.Second)
	if !p.Less(a, b) {
		t.Error("Less reads the clock")
	}
	enter(t, p, long, short)
	if p.Less(a, b) || !p.Less(b, a) {
		t.Error("the score is not that of the time at which the pods entered again")
	}
}

func TestChangedPodHasAnotherScoreWhenItEntersAgain(t *testing.T) {
	p, _ := plugin(t, "shortest")
	before := pod("a", 1, 10)
	enter(t, p, before)
	enter(t, p, pod("a", 1, 1000))
	if rank, _ := p.queue.rankOf("a"); rank.score != 1000 {
		t.Errorf("%+v", rank)
	}
}

func TestWaitOfAGatedPodBeginsWithoutItsGates(t *testing.T) {
	p, clock := plugin(t, "wfp3")
	gated := pod("a", 1, 10)
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "kueue"}}
	enter(t, p, gated)
	if _, known := p.queue.rankOf("a"); known || p.queue.waiting != 0 {
		t.Error("a gated pod waits")
	}
	clock.Step(time.Hour)
	enter(t, p, pod("a", 1, 10))
	if rank, _ := p.queue.rankOf("a"); rank.arrived != time.Hour || rank.score != 0 {
		t.Errorf("%+v", rank)
	}
}

func TestPodWithoutAScoreGoesLastByAge(t *testing.T) {
	p, _ := plugin(t, "shortest")
	known, older, younger := pod("known", 1, 1e6), pod("older", 1, 1), pod("younger", 1, 1)
	enter(t, p, known)
	a, b, c := queued(t, known, start.Add(time.Hour)), queued(t, older, start), queued(t, younger, start.Add(time.Second))
	if !p.Less(a, b) || p.Less(b, a) || !p.Less(b, c) || p.Less(c, b) {
		t.Error("not by score, then age")
	}
}

func TestSmallestAndLargestFollowTheClusterSize(t *testing.T) {
	p, _ := plugin(t, "smallest")
	gpus, cpus := pod("gpus", 1, 0), pod("cpus", 50, 0)
	gpus.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("3")
	enter(t, p, gpus, cpus)
	a, b := queued(t, gpus, start), queued(t, cpus, start)
	if !p.Less(a, b) { // 1 and 50 CPUs
		t.Error("without GPUs in the cluster")
	}
	p.queue.cluster.setNode("more", node(0, 4))
	enter(t, p, gpus, cpus)
	if p.Less(a, b) { // 3 and 2 GPUs
		t.Error("with GPUs in the cluster")
	}
	p.queue.cluster.setNode("more", nil)
	enter(t, p, gpus, cpus)
	if !p.Less(a, b) || p.queue.cluster.size != sizeOfNode(node(100, 0)) {
		t.Error("after the node is gone")
	}
}

func TestLessIsAStrictWeakOrder(t *testing.T) {
	p, clock := plugin(t, "wfp3")
	var all []*framework.QueuedPodInfo
	for i := range 30 {
		each := pod(fmt.Sprint(i), int64(i%3), float64(10*(i%4)))
		if i%5 > 0 { // others have no score
			enter(t, p, each)
		}
		priority := int32(i % 2)
		each.Spec.Priority = &priority
		all = append(all, queued(t, each, start.Add(time.Duration(i%7)*time.Second)))
		clock.Step(time.Duration(i%2) * time.Second)
	}
	equal := func(a, b *framework.QueuedPodInfo) bool { return !p.Less(a, b) && !p.Less(b, a) }
	for _, a := range all {
		for _, b := range all {
			if p.Less(a, b) && p.Less(b, a) || !equal(a, a) {
				t.Fatal("not antisymmetric")
			}
			for _, c := range all {
				if p.Less(a, b) && p.Less(b, c) && !p.Less(a, c) || equal(a, b) && equal(b, c) && !equal(a, c) {
					t.Fatal("not transitive")
				}
			}
		}
	}
}

// informed is a plugin that follows a cluster of objects.
func informed(t *testing.T, spec string, objects ...runtime.Object) (*Plugin, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	return informedBy(t, spec, client), client
}

func informedBy(t *testing.T, spec string, client *fake.Clientset) *Plugin {
	t.Helper()
	factory := informers.NewSharedInformerFactory(client, 0)
	given := &runtime.Unknown{Raw: []byte(`{"order": "` + spec + `"}`), ContentType: runtime.ContentTypeJSON}
	made, err := New(t.Context(), given, &handle{client: client, factory: factory})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return made.(*Plugin)
}

func until(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain")
		}
	}
}

func TestFirstPodWaitsForTheNodesToBeKnown(t *testing.T) {
	p, _ := informed(t, "area@none", node(10, 0))
	enter(t, p, pod("a", 2, 0))
	if rank, _ := p.queue.rankOf("a"); rank.score != 2*3600 {
		t.Errorf("%+v", rank)
	}
}

func TestRunTimesAreLearnedFromPodsThatEnd(t *testing.T) {
	began := metav1.NewTime(time.Now().Add(-1000 * time.Second))
	running := pod("running", 2, 0)
	running.Spec.NodeName, running.Status.StartTime = "node", &began
	running.Annotations = map[string]string{"steersman.dev/owner": "Job/a"}
	never := pod("never", 2, 0)
	p, client := informed(t, "shortest", node(10, 0), running, never)
	next := pod("next", 2, 0)
	enter(t, p, next)
	first, _ := p.queue.rankOf("next")
	until(t, func() bool { return p.queue.cluster.holds("running") })
	for _, each := range []string{"never", "running"} {
		if err := client.CoreV1().Pods("default").Delete(t.Context(), each, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() bool { return !p.queue.cluster.holds("running") })
	// What was learned is there once the event is dealt with.
	until(t, func() bool {
		median, _ := p.queue.runTimes.Estimate(kindOf(running))
		return median != first.score
	})
	enter(t, p, next)
	second, _ := p.queue.rankOf("next")
	if distance := func(seconds float64) float64 { return math.Abs(math.Log(seconds / 1000)) }; distance(second.score) >= distance(first.score) {
		t.Errorf("%v, then %v", first.score, second.score)
	}
	if _, used := p.queue.cluster.look(); used != 1 {
		t.Errorf("%v of the cluster is free", used)
	}
}

// ended is a pod that began 3,000 s ago and ran for so many seconds.
func ended(name string, seconds int) *v1.Pod {
	pod := pod(name, 2, 0)
	began := time.Now().Add(-3000 * time.Second).Truncate(time.Second)
	pod.Status.Phase, pod.Status.StartTime = v1.PodSucceeded, &metav1.Time{Time: began}
	terminated := &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(began.Add(time.Duration(seconds) * time.Second))}
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: terminated}}, {}}
	return pod
}

func TestRunTimesAreLearnedFromPodsThatEndedBefore(t *testing.T) {
	first, failed, silent, running := ended("first", 100), ended("failed", 200), ended("silent", 9), ended("running", 9)
	failed.Status.Phase, silent.Status.ContainerStatuses, running.Status.Phase = v1.PodFailed, nil, v1.PodRunning
	p, _ := informed(t, "shortest", node(10, 0), silent, running, failed, first)
	next := pod("next", 2, 0)
	enter(t, p, next) // waits for what is learned
	want := orders.NewRunTimes()
	want.Note(kindOf(next), 100)
	want.Note(kindOf(next), 200)
	median, _ := want.Estimate(kindOf(next))
	if rank, _ := p.queue.rankOf("next"); rank.score != median {
		t.Errorf("%v, not %v", rank.score, median)
	}
}

func TestPodsSeenToEndCountOnce(t *testing.T) {
	p, _ := plugin(t, "shortest")
	watched, before := ended("watched", 100), ended("before", 100)
	watched.Spec.NodeName, watched.Status.Phase = "node", v1.PodRunning
	p.queue.onPod(watched)
	finished := watched.DeepCopy()
	finished.Status.Phase = v1.PodSucceeded
	p.queue.onPod(finished)
	p.queue.runTimes = orders.NewRunTimes() // what it learned from the event does not matter here
	p.queue.learnFromEnded(t.Context(), fake.NewClientset(finished, before))
	checkEnded(t, p, before, 100)
}

// checkEnded checks that the run time of one pod is all that was learned.
func checkEnded(t *testing.T, p *Plugin, pod *v1.Pod, seconds float64) {
	t.Helper()
	once := orders.NewRunTimes()
	once.Note(kindOf(pod), seconds)
	want, _ := once.Estimate(kindOf(pod))
	if got, _ := p.queue.runTimes.Estimate(kindOf(pod)); got != want {
		t.Errorf("%v, not %v", got, want)
	}
}

func TestOrdersWithoutHistoryListNothing(t *testing.T) {
	for _, spec := range []string{"smallest", "shortest@stated", "wfp3@none"} {
		p, client := informed(t, spec, node(10, 0), ended("first", 100))
		enter(t, p, pod("next", 2, 0))
		for _, each := range client.Actions() {
			if list, is := each.(clienttesting.ListAction); is && !list.GetListRestrictions().Fields.Empty() {
				t.Errorf("%s: %+v", spec, each)
			}
		}
	}
}

func TestForbiddenListTeachesNothing(t *testing.T) {
	client := fake.NewClientset(node(10, 0), ended("first", 100))
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		forbidden := !action.(clienttesting.ListAction).GetListRestrictions().Fields.Empty()
		return forbidden, nil, errors.NewForbidden(v1.Resource("pods"), "", nil)
	})
	p := informedBy(t, "shortest", client)
	next := pod("next", 2, 0)
	enter(t, p, next)
	want, _ := orders.NewRunTimes().Estimate(kindOf(next))
	if rank, _ := p.queue.rankOf("next"); rank.score != want {
		t.Errorf("%v, not %v", rank.score, want)
	}
}

func TestFinishedPodCountsOnce(t *testing.T) {
	p, _ := plugin(t, "shortest")
	done := pod("done", 2, 0)
	done.Spec.NodeName = "node"
	p.queue.onPod(done)
	if _, free := p.queue.cluster.look(); free != 0.98 {
		t.Errorf("%v is free", free)
	}
	done.Status.Phase = v1.PodSucceeded
	for range 2 {
		p.queue.onPod(done)
	}
	p.queue.onEnd(done)
	if _, free := p.queue.cluster.look(); free != 1 {
		t.Errorf("%v is free", free)
	}
	checkEnded(t, p, done, 0)
}

func TestPodsThatAreGoneAreForgotten(t *testing.T) {
	p, _ := plugin(t, "shortest")
	for i := range 1000 {
		enter(t, p, pod(fmt.Sprint(i), 1, 10))
	}
	for i := range 500 {
		p.queue.leave(types.UID(fmt.Sprint(i)))
	}
	if p.queue.waiting != 500 {
		t.Errorf("%d pods wait", p.queue.waiting)
	}
	// A heap that still holds one of them must find its rank.
	if rank, known := p.queue.rankOf("7"); !known || rank.score != 10 {
		t.Errorf("%+v", rank)
	}
	late := pod("late", 1, 10) // it enters after its deletion was seen
	p.queue.leave(late.UID)
	enter(t, p, late)
	waits := func(pod *v1.Pod) bool { return len(pod.Name) == 3 && pod.Name >= "500" }
	p.queue.forget(waits)
	enter(t, p, pod("3", 1, 10)) // that of another life is back in time
	if len(p.queue.pods) != 1001 {
		t.Errorf("%d pods are known after the first look", len(p.queue.pods))
	}
	p.queue.forget(waits)
	if len(p.queue.pods) != 501 || p.queue.waiting != 501 {
		t.Errorf("%d pods are known, %d wait", len(p.queue.pods), p.queue.waiting)
	}
	p.queue.forget(waits)
	if len(p.queue.pods) != 500 || p.queue.waiting != 500 {
		t.Errorf("%d pods are known, %d wait", len(p.queue.pods), p.queue.waiting)
	}
}

func TestObjectsAreWhatPythonSaysOfThem(t *testing.T) {
	content, err := os.ReadFile("../../../tests/contract/data/orders.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Clusters []struct {
			Nodes    []*v1.Node
			Capacity float64
			Pods     []struct {
				Pod    *v1.Pod
				Size   float64
				Owner  string
				Stated map[orders.Source]*float64
			}
		}
	}
	if err := json.Unmarshal(content, &vectors); err != nil {
		t.Fatal(err)
	}
	pods := 0
	for _, cluster := range vectors.Clusters {
		known := newCluster()
		for _, each := range cluster.Nodes {
			known.setNode(each.Name, each)
		}
		size, _ := known.look()
		if size.capacity() != cluster.Capacity {
			t.Errorf("capacity %v, not %v", size.capacity(), cluster.Capacity)
		}
		for _, each := range cluster.Pods {
			pods++
			if got := size.of(requestsOf(each.Pod)); math.Abs(got-each.Size) > 1e-12*math.Max(1, each.Size) {
				t.Errorf("%s: size %v, not %v", each.Pod.Name, got, each.Size)
			}
			if got := podowner.Of(each.Pod).Name; got != each.Owner {
				t.Errorf("%s: owner %s, not %s", each.Pod.Name, got, each.Owner)
			}
			for source, want := range each.Stated {
				got := statedSeconds(each.Pod, source)
				if want == nil && !math.IsNaN(got) || want != nil && got != *want {
					t.Errorf("%s@%s: %v, not %v", each.Pod.Name, source, got, want)
				}
			}
		}
	}
	if pods != 80 {
		t.Errorf("%d pods", pods)
	}
}

func TestStatedSecondsThatMakeNoSense(t *testing.T) {
	deadline := int64(600)
	for _, text := range []string{"soon", "-1", "0", "NaN", "Inf", "1e15"} {
		wrong := pod("a", 1, 0)
		wrong.Annotations = map[string]string{secondsKey: text}
		if got := statedSeconds(wrong, orders.Auto); !math.IsNaN(got) {
			t.Errorf("%s: %v", text, got)
		}
		wrong.Spec.ActiveDeadlineSeconds = &deadline
		if got := statedSeconds(wrong, orders.Stated); got != 600 {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestArgs(t *testing.T) {
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	for args, says := range map[string]string{
		`{"order": "wfp3:easy"}`:         `args.order: "wfp3:easy" holds other pods back`,
		`{"order": "none.safetensors"}`:  "args.order: order file none.safetensors: cannot be read",
		`{"order": ""}`:                  `args.order: "" is unknown`,
		`{"orders": "age"}`:              `unknown field "orders"`,
		`{"order": 1}`:                   "args: ",
		`{"order": "a", "order": "b"}`:   `duplicate field "order"`,
		`{"order": "shortest@oracle:2"}`: "no cluster knows true run times",
	} {
		_, err := New(t.Context(), &runtime.Unknown{Raw: []byte(args), ContentType: runtime.ContentTypeJSON}, &handle{client: client, factory: factory})
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, not %s", args, err, says)
		}
	}
	made, err := New(t.Context(), nil, &handle{client: client, factory: factory})
	if err != nil || made.(*Plugin).order.Kind != orders.Age {
		t.Errorf("%+v, %v", made, err)
	}
}

func TestProfilesOfASchedulerShareTheQueue(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client := fake.NewClientset(node(10, 0))
	factory := informers.NewSharedInformerFactory(client, 0)
	given := &runtime.Unknown{Raw: []byte(`{"order": "shortest"}`), ContentType: runtime.ContentTypeJSON}
	var profiles []*Plugin
	for range 2 {
		made, err := New(ctx, given, &handle{client: client, factory: factory})
		if err != nil {
			t.Fatal(err)
		}
		profiles = append(profiles, made.(*Plugin))
	}
	factory.Start(ctx.Done())
	short, long := pod("short", 1, 1), pod("long", 1, 9)
	enter(t, profiles[0], long)
	enter(t, profiles[1], short) // kube-scheduler asks the first profile who goes first
	if !profiles[0].Less(queued(t, short, start), queued(t, long, start)) {
		t.Error("the pod of the second profile has no score in the first")
	}
	cancel()
	until(t, func() bool {
		queuesMutex.Lock()
		defer queuesMutex.Unlock()
		return queues[factory] == nil
	})
}

func TestManyAtATime(t *testing.T) {
	p, _ := plugin(t, "shortest")
	var working sync.WaitGroup
	for worker := range 4 {
		working.Go(func() {
			for i := range 300 {
				each := pod(fmt.Sprintf("%d-%d", worker, i), 1, 0)
				enter(t, p, each)
				p.Less(queued(t, each, start), queued(t, each, start))
				each = each.DeepCopy()
				each.Spec.NodeName = "node"
				p.queue.onPod(each)
				p.queue.cluster.setNode(fmt.Sprint(worker), node(int64(i), 0))
				p.queue.onEnd(each)
				p.queue.forget(func(*v1.Pod) bool { return i%2 == 0 })
			}
		})
	}
	working.Wait()
	if p.queue.waiting != 0 {
		t.Errorf("%d pods wait", p.queue.waiting)
	}
}

func BenchmarkLess(b *testing.B) {
	for _, spec := range []string{"age", "wfp3"} {
		for _, count := range []int{100, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", spec, count), func(b *testing.B) {
				p, _ := plugin(b, spec)
				var all []*framework.QueuedPodInfo
				for i := range count {
					each := pod(fmt.Sprintf("8f0f3c1e-6a55-4a5b-9d5e-%012d", i), 1, float64(i+1))
					enter(b, p, each)
					all = append(all, queued(b, each, start))
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					p.Less(all[i%count], all[(7*i+1)%count])
				}
			})
		}
	}
}

func BenchmarkPreEnqueue(b *testing.B) {
	for _, spec := range []string{"shortest@stated", "wfp3@history"} {
		b.Run(spec, func(b *testing.B) {
			p, _ := plugin(b, spec)
			var all []*v1.Pod
			for i := range 10_000 {
				all = append(all, pod(fmt.Sprintf("8f0f3c1e-6a55-4a5b-9d5e-%012d", i), 1, 0))
			}
			enter(b, p, all...)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				p.PreEnqueue(b.Context(), all[i%10_000])
			}
		})
	}
}
