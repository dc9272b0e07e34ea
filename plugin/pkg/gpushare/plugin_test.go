package gpushare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	cached "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/internal/compat"
	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/scoring"
)

// handle is as much of a framework as the plugin requests.
type handle struct {
	compat.Handle
	snapshot *cached.Snapshot
	client   kubernetes.Interface
	factory  informers.SharedInformerFactory
	binders  []string
}

func (h *handle) SnapshotSharedLister() compat.SharedLister              { return h.snapshot }
func (h *handle) ClientSet() kubernetes.Interface                        { return h.client }
func (h *handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h *handle) APICacher() compat.APICacher                            { return nil }
func (h *handle) ProfileName() string                                    { return "here" }
func (h *handle) ListPlugins() *config.Plugins {
	plugins := &config.Plugins{}
	for _, name := range h.binders {
		plugins.Bind.Enabled = append(plugins.Bind.Enabled, config.Plugin{Name: name})
	}
	return plugins
}

// plugin is one with a ledger of its own, for an API server at the address.
func plugin(t *testing.T, server string, nodes []*v1.Node, pods ...*v1.Pod) *Plugin {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server})
	if err != nil {
		t.Fatal(err)
	}
	there := &handle{
		snapshot: cached.NewSnapshot(pods, nodes), client: client,
		factory: informers.NewSharedInformerFactory(client, 0), binders: []string{Name, "DefaultBinder"},
	}
	made, err := New(t.Context(), nil, there)
	if err != nil {
		t.Fatal(err)
	}
	result := made.(*Plugin)
	result.ledger = &gpu.Ledger{}
	return result
}

func node(name, model string, count int64) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{gpu.ModelKey: model}},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			gpu.CountKey: *resource.NewQuantity(count, resource.DecimalSI),
			gpu.MilliKey: *resource.NewQuantity(1000*count, resource.DecimalSI),
		}},
	}
}

// pod requests "count milli models index"; "-" leaves one out.
func pod(name, wish, node string) *v1.Pod {
	made := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID(name), Annotations: map[string]string{},
	}}
	made.Spec.NodeName = node
	keys := []string{gpu.CountKey, gpu.MilliKey, gpu.ModelKey, gpu.IndexKey}
	for i, value := range strings.Fields(wish) {
		if value != "-" {
			made.Annotations[keys[i]] = value
		}
	}
	return made
}

// fits runs the filters for a pod; why it is refused, "" where it is not.
func fits(p *Plugin, pod *v1.Pod, on string) string {
	state := framework.NewCycleState()
	if _, status := p.PreFilter(context.Background(), state, pod, nil); !status.IsSuccess() {
		return fmt.Sprint(status.Code(), ": ", status.Message())
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(on)
	if err != nil {
		return err.Error()
	}
	status := p.Filter(context.Background(), state, pod, info)
	if status.IsSuccess() {
		return ""
	}
	return fmt.Sprint(status.Code(), ": ", status.Message())
}

func TestFilter(t *testing.T) {
	odd := node("odd", "V100", 2)
	odd.Status.Allocatable[gpu.MilliKey] = resource.MustParse("1500")
	p := plugin(t, "", []*v1.Node{node("two", "V100", 2), node("none", "", 0), node("unknown", "", 1), odd},
		pod("a", "1 600 - 0", "two"), pod("b", "1 1000 - 1", "two"))
	for _, test := range []struct{ wish, node, want string }{
		{"1 400", "two", ""},
		{"1 400 P100|V100", "two", ""},
		{"1 401", "two", "Unschedulable: Insufficient GPU"},
		{"2 100", "two", "Unschedulable: Insufficient GPU"},
		{"3 100", "two", "UnschedulableAndUnresolvable: node(s) didn't have so many GPUs"},
		{"1 400 P100", "two", "UnschedulableAndUnresolvable: node(s) didn't have the GPU model"},
		{"1 400 P100", "unknown", "UnschedulableAndUnresolvable: node(s) didn't have the GPU model"},
		{"1 400", "unknown", ""},
		{"1 400", "none", "UnschedulableAndUnresolvable: node(s) didn't have so many GPUs"},
		{"1 400", "odd", "UnschedulableAndUnresolvable: node(s) had GPUs that make no sense"},
		{"", "two", "Skip: "},
		{"0 0", "two", "Skip: "},
		{
			"1 1001", "two", "UnschedulableAndUnresolvable: metadata.annotations['alibabacloud.com/gpu-milli']: " +
				`"1001" is too much; it is of each device, 0 to 1000`,
		},
		{
			"2 100 - 7", "two", "UnschedulableAndUnresolvable: metadata.annotations['alibabacloud.com/gpu-index']: " +
				`"7" does not name the pod's 2 devices; write device numbers as 2-3-4`,
		},
	} {
		if result := fits(p, pod("waiting", test.wish, ""), test.node); result != test.want {
			t.Errorf("%q on %s: %q; want %q", test.wish, test.node, result, test.want)
		}
	}
}

func TestDevicePluginsAreLeftAloneWhereSharingMakesNoSense(t *testing.T) {
	sliced := node("sliced", "", 0)
	sliced.Status.Allocatable = v1.ResourceList{"nvidia.com/gpu": resource.MustParse("80")}
	p := plugin(t, "", []*v1.Node{sliced})
	whole := pod("whole", "", "")
	wanted := v1.ResourceRequirements{Requests: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}
	whole.Spec.Containers = []v1.Container{{Resources: wanted}}
	if result := fits(p, whole, "sliced"); result != "" {
		t.Error(result)
	}
	if status := reserve(p, whole, "sliced"); !status.IsSuccess() || p.ledger.Len() != 0 {
		t.Error(status)
	}
	if result := fits(p, pod("share", "1 500", ""), "sliced"); !strings.Contains(result, "so many GPUs") {
		t.Error(result)
	}
}

// offering is a node with these allocatable resources.
func offering(name, model string, amounts ...string) *v1.Node {
	made := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{gpu.ModelKey: model}}}
	made.Status.Allocatable = v1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		made.Status.Allocatable[v1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return made
}

// wholePod asks a device plugin for GPUs.
func wholePod(name, gpu, count, node string) *v1.Pod {
	made := pod(name, "", node)
	wanted := v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceName(gpu): resource.MustParse(count)}}
	made.Spec.Containers = []v1.Container{{Resources: wanted}}
	return made
}

// TestWithoutSharesGPUsAreLeftToOthers holds the plugin to refuse no pod for GPUs that NodeResourcesFit and
// DynamicResources count: a DeviceClass may serve them where the node offers none.
func TestWithoutSharesGPUsAreLeftToOthers(t *testing.T) {
	p := plugin(t, "", []*v1.Node{
		offering("claimed", "V100", "cpu", "8"), offering("one", "V100", "nvidia.com/gpu", "1"),
		offering("amd", "", "amd.com/gpu", "1"), offering("shared", "V100", gpu.CountKey, "2"),
	}, wholePod("a", "nvidia.com/gpu", "1", "one"))
	for _, node := range []string{"claimed", "one", "amd", "shared"} {
		if result := fits(p, wholePod("waiting", "nvidia.com/gpu", "2", ""), node); result != "" {
			t.Errorf("%s: %s", node, result)
		}
	}
	choosy := wholePod("choosy", "nvidia.com/gpu", "1", "")
	choosy.Annotations[gpu.ModelKey] = "A100|V100"
	for node, want := range map[string]string{
		"claimed": "", "amd": "UnschedulableAndUnresolvable: node(s) didn't have the GPU model",
	} {
		if result := fits(p, choosy, node); result != want {
			t.Errorf("%s: %q; want %q", node, result, want)
		}
	}
}

func TestNoIndexIsPromisedWhereTheKubeletChooses(t *testing.T) {
	both := offering("both", "V100", gpu.CountKey, "2", "nvidia.com/gpu", "2")
	p := plugin(t, "", []*v1.Node{both, offering("claimed", "", "cpu", "8")})
	annotated := wholePod("annotated", "nvidia.com/gpu", "1", "")
	annotated.Annotations[gpu.CountKey] = "1"
	for _, node := range []string{"both", "claimed"} {
		for _, waiting := range []*v1.Pod{wholePod("whole", "nvidia.com/gpu", "1", ""), annotated} {
			if status := reserve(p, waiting, node); !status.IsSuccess() || p.ledger.Len() != 0 {
				t.Errorf("%s on %s: %v, %d promises", waiting.Name, node, status, p.ledger.Len())
			}
			if status := p.Bind(t.Context(), nil, waiting, node); status.Code() != fwk.Skip {
				t.Errorf("%s on %s: %v", waiting.Name, node, status)
			}
		}
	}
}

func TestSharesAndDevicePluginsDoNotMixOnANode(t *testing.T) {
	amounts := []string{gpu.CountKey, "2", "nvidia.com/gpu", "2", "amd.com/gpu", "8"}
	p := plugin(t, "", []*v1.Node{
		offering("sharing", "", amounts...), offering("plugged", "", amounts...), offering("claimed", "", gpu.CountKey, "2"),
		offering("apart", "", amounts...),
	}, pod("a", "1 500 - 0", "sharing"), wholePod("b", "nvidia.com/gpu", "1", "plugged"),
		wholePod("c", "nvidia.com/gpu", "1", "claimed"), wholePod("d", "amd.com/gpu", "1", "apart"))
	const shares, chosen = "Unschedulable: node(s) had pods that share GPUs", "Unschedulable: node(s) had pods whose GPUs the kubelet chose"
	whole, share := wholePod("whole", "nvidia.com/gpu", "1", ""), pod("share", "1 300", "")
	for _, test := range []struct {
		pod        *v1.Pod
		node, want string
	}{
		{whole, "sharing", shares},
		{whole, "plugged", ""},
		{whole, "apart", ""},
		{wholePod("other", "amd.com/gpu", "1", ""), "sharing", ""}, // of another kind than those that pods share
		{share, "sharing", ""},
		{share, "plugged", chosen},
		{share, "claimed", chosen},
		{share, "apart", ""},
	} {
		if result := fits(p, test.pod, test.node); result != test.want {
			t.Errorf("%s on %s: %q; want %q", test.pod.Name, test.node, result, test.want)
		}
	}
}

// TestMembersOfAPodGroupGetDifferentDevices replays the second part of a pod group's cycle: all members are reserved
// and bound by one snapshot, which has none of them.
func TestMembersOfAPodGroupGetDifferentDevices(t *testing.T) {
	p := plugin(t, "", []*v1.Node{node("n", "", 2), node("m", "", 2)}, pod("before", "1 600 - 0", "n"))
	elsewhere := pod("elsewhere", "2 1000", "")
	for _, each := range []struct {
		pod  *v1.Pod
		node string
		code fwk.Code
		want uint64
	}{
		{elsewhere, "m", fwk.Success, 0b11},
		{pod("first", "1 400", ""), "n", fwk.Success, 0b01},
		{pod("second", "1 400", ""), "n", fwk.Success, 0b10},
		{pod("third", "1 600", ""), "n", fwk.Success, 0b10},
		{pod("fourth", "1 400", ""), "n", fwk.Error, 0}, // tried again soon: the next snapshot tells
		{pod("fifth", "2 500", ""), "n", fwk.Unschedulable, 0},
	} {
		status := reserve(p, each.pod, each.node)
		if status.Code() != each.code {
			t.Errorf("%s: %v; want %v", each.pod.Name, status, each.code)
		}
		if devices, _ := p.ledger.Reserved(each.pod.UID, each.node); devices != each.want {
			t.Errorf("%s: %b; want %b", each.pod.Name, devices, each.want)
		}
	}
}

func TestTheFilterCountsTheNodeThatItIsShown(t *testing.T) {
	p := plugin(t, "", []*v1.Node{node("one", "", 1)}, pod("victim", "1 600 - 0", "one"))
	waiting := pod("waiting", "1 500", "")
	if fits(p, waiting, "one") == "" {
		t.Fatal("fits beside the victim")
	}
	info, _ := p.handle.SnapshotSharedLister().NodeInfos().Get("one")
	without := info.Snapshot()
	if err := without.RemovePod(klog.Background(), pod("victim", "1 600 - 0", "one")); err != nil {
		t.Fatal(err)
	}
	state := framework.NewCycleState()
	p.PreFilter(t.Context(), state, waiting, nil)
	if status := p.Filter(t.Context(), state, waiting, without); !status.IsSuccess() {
		t.Error(status)
	}
	if fits(p, waiting, "one") == "" {
		t.Error("what was counted for preemption is taken for the node")
	}
}

type selector struct {
	devices uint64
	chooses bool
}

func (s selector) Devices(*v1.Pod, fwk.NodeInfo) (uint64, bool) { return s.devices, s.chooses }

// reserve is a pod's turn from its filters to its reservation.
func reserve(p *Plugin, pod *v1.Pod, on string) *fwk.Status {
	state := framework.NewCycleState()
	p.PreFilter(context.Background(), state, pod, nil)
	return p.Reserve(context.Background(), state, pod, on)
}

func TestReserveTakesThePolicysDevicesIfThePodMayHaveThem(t *testing.T) {
	for name, test := range map[string]struct {
		selector scoring.DeviceSelector
		want     uint64
	}{
		"nobody chooses":     {nil, 0b010},
		"the policy chooses": {selector{0b100, true}, 0b100},
		"chooses nothing":    {selector{0b100, false}, 0b010},
		"too little left":    {selector{0b001, true}, 0b010},
		"too many":           {selector{0b110, true}, 0b010},
		"none":               {selector{0, true}, 0b010},
		"not there":          {selector{0b1000, true}, 0b010},
	} {
		t.Run(name, func(t *testing.T) {
			p := plugin(t, "", []*v1.Node{node("n", "", 3)}, pod("a", "1 900 - 0", "n"), pod("b", "1 500 - 1", "n"))
			scoring.RegisterSelector("here", test.selector)
			defer scoring.RegisterSelector("here", selector{})
			if status := reserve(p, pod("x", "1 400", ""), "n"); !status.IsSuccess() {
				t.Fatal(status)
			}
			if reserved, ok := p.ledger.Reserved("x", "n"); !ok || reserved != test.want {
				t.Errorf("%b; want %b", reserved, test.want)
			}
			p.Unreserve(t.Context(), nil, pod("x", "", ""), "n")
			p.Unreserve(t.Context(), nil, pod("x", "", ""), "n")
			if p.ledger.Len() != 0 {
				t.Error("the reservation is not taken back")
			}
		})
	}
}

func TestReserveRefusesWhatHasNoRoomAnyMore(t *testing.T) {
	p := plugin(t, "", []*v1.Node{node("n", "", 1)}, pod("a", "1 900 - 0", "n"))
	if status := reserve(p, pod("x", "1 400", ""), "n"); status.Code() != fwk.Unschedulable || p.ledger.Len() != 0 {
		t.Error(status)
	}
	if status := reserve(p, pod("none", "", ""), "n"); !status.IsSuccess() || p.ledger.Len() != 0 {
		t.Error(status)
	}
}

func TestAProfileThatBindsOtherwiseIsToldToThePod(t *testing.T) {
	for _, test := range []struct {
		binders []string
		refused bool
	}{
		{[]string{Name, "DefaultBinder"}, false},
		{[]string{"Other", Name}, false},
		{[]string{"DefaultBinder", Name}, true},
		{[]string{"DefaultBinder"}, true},
		{nil, true},
	} {
		p := plugin(t, "", []*v1.Node{node("n", "", 1)})
		p.handle.(*handle).binders = test.binders
		result := fits(p, pod("x", "1 400", ""), "n")
		if (result != "") != test.refused || test.refused && !strings.Contains(result, `profile "here" does not bind by`) {
			t.Errorf("%v: %q", test.binders, result)
		}
		if result := fits(p, pod("x", "", ""), "n"); result != "Skip: " {
			t.Errorf("a pod without GPUs is refused: %q", result)
		}
	}
}

func TestArgumentsAreRefused(t *testing.T) {
	unknown := &runtime.Unknown{Raw: []byte(`{"device": 1}`)}
	if _, err := New(t.Context(), unknown, &handle{}); err == nil || !strings.Contains(err.Error(), Name) {
		t.Error(err)
	}
}

func TestDeletedPodsAndNodesAreForgotten(t *testing.T) {
	offering, asking := node("n", "", 1), pod("x", "1 400", "")
	p := plugin(t, "", []*v1.Node{offering})
	client := fake.NewClientset(offering, asking)
	factory := informers.NewSharedInformerFactory(client, 0)
	p.handle.(*handle).factory = factory
	if err := p.follow(); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	fits(p, asking, "n")
	p.ledger.Reserve(asking.UID, "n", 1, 400)
	if _, ok := p.nodes.Load("n"); !ok {
		t.Fatal("nothing is kept")
	}
	err := errors.Join(
		client.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}),
		client.CoreV1().Pods("default").Delete(t.Context(), "x", metav1.DeleteOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	forgotten := func(context.Context) (bool, error) {
		_, ok := p.nodes.Load("n")
		return !ok && p.ledger.Len() == 0, nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, forgotten); err != nil {
		t.Errorf("%d pods are kept, or the node: %v", p.ledger.Len(), err)
	}
}

func TestPodsAreSignedByWhatTheyAskFor(t *testing.T) {
	p := &Plugin{}
	sign := func(wish string) string {
		fragments, status := p.SignPod(t.Context(), pod("x", wish, ""))
		if !status.IsSuccess() {
			return status.Code().String()
		}
		return fmt.Sprint(fragments)
	}
	signs := []string{sign(""), sign("1 400"), sign("1 400 V100"), sign("2 400"), sign("1 4000")}
	slices.Sort(signs)
	if len(slices.Compact(signs)) != 5 || sign("1 400 - 2") != sign("1 0.4k") {
		t.Error(signs)
	}
	if sign("1 4000") != "Unschedulable" {
		t.Error(sign("1 4000"))
	}
}

// TestManyAtATime is for the race detector: one scheduling cycle after another, each with many filters, beside bindings.
func TestManyAtATime(t *testing.T) {
	p := plugin(t, "", []*v1.Node{node("n", "", 8)}, pod("a", "1 300 - 0", "n"))
	var binding sync.WaitGroup
	for i := range 50 {
		waiting, state := pod(fmt.Sprint(i), "1 100", ""), framework.NewCycleState()
		p.PreFilter(t.Context(), state, waiting, nil)
		info, _ := p.handle.SnapshotSharedLister().NodeInfos().Get("n")
		var filters sync.WaitGroup
		for range 8 {
			filters.Go(func() { p.Filter(t.Context(), state, waiting, info) })
		}
		filters.Wait()
		if status := p.Reserve(t.Context(), state, waiting, "n"); !status.IsSuccess() {
			t.Fatal(status)
		}
		binding.Go(func() {
			p.ledger.Reserved(waiting.UID, "n")
			p.Unreserve(context.Background(), state, waiting, "n")
		})
	}
	binding.Wait()
	if p.ledger.Len() != 0 {
		t.Error(p.ledger.Len())
	}
}

// BenchmarkFilter is a cycle's filters of 1,213 nodes, one of which has changed.
func BenchmarkFilter(b *testing.B) {
	there := make([]*v1.Node, 1213)
	var pods []*v1.Pod
	for i := range there {
		name := fmt.Sprintf("node-%04d", i)
		there[i] = node(name, "V100", 8)
		for d := range 8 {
			pods = append(pods, pod(fmt.Sprint(name, "-", d), fmt.Sprint("1 600 - ", d), name))
		}
	}
	p := &Plugin{handle: &handle{}, ledger: &gpu.Ledger{}, configError: func() string { return "" }}
	infos, _ := cached.NewSnapshot(pods, there).NodeInfos().List()
	waiting, state := pod("waiting", "1 500", ""), framework.NewCycleState()
	p.PreFilter(b.Context(), state, waiting, nil)
	b.ReportAllocs()
	for b.Loop() {
		p.nodes.Delete(there[0].Name)
		for _, info := range infos {
			p.Filter(b.Context(), state, waiting, info)
		}
	}
}
