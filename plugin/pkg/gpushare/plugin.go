// Package gpushare is the plugin SteersmanGpuShare of kube-scheduler: pods that share GPUs by annotations.
//
// It filters the nodes that have the devices, chooses devices when a node is chosen, and binds. The devices are written
// to the pod by the binding itself: the API server merges a Binding's annotations into the pod in the same write, so
// that a pod never has a node without its devices or the other way round. A patch before the binding would be another
// request, and needs a right to patch pods that kube-scheduler does not have.
//
// A profile must enable it at multiPoint and at bind, so that it comes before DefaultBinder, to which it leaves all
// pods without GPUs:
//
//	plugins:
//	  multiPoint: {enabled: [{name: SteersmanGpuShare}]}
//	  bind: {enabled: [{name: SteersmanGpuShare}]}
//
// Where a profile lacks the latter, pods that share GPUs stay unschedulable, and their events say why.
package gpushare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"steersman.dev/plugin/internal/compat"
	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/scoring"
)

// Name is what configurations call the plugin.
const Name = "SteersmanGpuShare"

var (
	_ compat.PreFilterPlugin   = &Plugin{}
	_ compat.FilterPlugin      = &Plugin{}
	_ compat.ReservePlugin     = &Plugin{}
	_ compat.BindPlugin        = &Plugin{}
	_ compat.EnqueueExtensions = &Plugin{}
	_ compat.SignPlugin        = &Plugin{}
)

// Plugin implements shared GPUs for a profile.
type Plugin struct {
	handle      compat.Handle
	ledger      *gpu.Ledger
	nodes       sync.Map      // of *countedNode by name, for as long as nodes do not change
	configError func() string // about the profile
}

// New makes the plugin of a profile. It has no arguments.
func New(_ context.Context, arguments runtime.Object, handle compat.Handle) (compat.Plugin, error) {
	if unknown, ok := arguments.(*runtime.Unknown); ok && len(unknown.Raw) > 0 {
		return nil, fmt.Errorf("pluginConfig of %s: it takes no args", Name)
	}
	plugin := &Plugin{handle: handle, ledger: gpu.Assumed}
	plugin.configError = sync.OnceValue(plugin.configurationError)
	return plugin, plugin.follow()
}

func (*Plugin) Name() string { return Name }

func (p *Plugin) follow() error {
	informers := p.handle.SharedInformerFactory().Core().V1()
	_, err := informers.Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: compat.OnDelete(func(pod *v1.Pod) { p.ledger.Release(pod.UID) }),
	})
	if err != nil {
		return err
	}
	_, err = informers.Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: compat.OnDelete(func(node *v1.Node) { p.nodes.Delete(node.Name) }),
	})
	return err
}

// PreFilter reads what the pod requests, and skips pods without GPUs.
func (p *Plugin) PreFilter(
	_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo,
) (*compat.PreFilterResult, *fwk.Status) {
	request, err := requestOf(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if request.Count == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if configError := p.configError(); configError != "" && gpu.IsShared(request) {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, configError)
	}
	state.Write(Name, requestState{request})
	return nil, nil
}

// requestOf returns what a waiting pod requests. It may come with devices of another life, which must make sense all
// the same.
func requestOf(pod *v1.Pod) (gpu.Request, error) {
	request, err := gpu.RequestOf(pod)
	if err == nil {
		_, err = gpu.ParseIndex(pod.Annotations[gpu.IndexKey], request.Count)
	}
	return request, err
}

type requestState struct{ gpu.Request }

// Clone returns the request itself, which is never written to.
func (s requestState) Clone() fwk.StateData { return s }

// PreFilterExtensions returns none: Filter counts the pods of the node that it is shown.
func (*Plugin) PreFilterExtensions() compat.PreFilterExtensions { return nil }

// Filter lets a pod that shares GPUs on nodes that have enough devices with enough left, of a model that it accepts. Of
// others it looks at the model alone: how many GPUs there are is for NodeResourcesFit, or DynamicResources where a
// DeviceClass serves them.
//
// Whose devices the kubelet or a DRA driver chose, and whose the annotations name, may be the same ones, so a node has
// pods of one way only.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	result, err := state.Read(Name)
	if err != nil {
		return fwk.AsStatus(err)
	}
	request, node := result.(requestState).Request, p.nodeState(info)
	if !gpu.IsShared(request) {
		return filterPlugged(request, info, node)
	}
	switch {
	case node.Err != nil:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) had GPUs that make no sense")
	case int64(len(node.Free)) < request.Count && node.CountedAs(request.Resource) == nil:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) didn't have so many GPUs")
	case !node.Accepts(&request):
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) didn't have the GPU model")
	case node.Plugged > 0 && node.CountedAs(request.Resource) == nil:
		return fwk.NewStatus(fwk.Unschedulable, "node(s) had pods whose GPUs the kubelet chose")
	case !node.Fits(&request):
		return fwk.NewStatus(fwk.Unschedulable, "Insufficient GPU")
	}
	return nil
}

type countedNode struct {
	gpu.Node
	revision scoring.Revision
}

func (p *Plugin) nodeState(info fwk.NodeInfo) *countedNode {
	name, revision := info.Node().Name, scoring.RevisionOf(info)
	if former, ok := p.nodes.Load(name); ok && former.(*countedNode).revision == revision {
		return former.(*countedNode)
	}
	counted := &countedNode{p.ledger.NodeState(info), revision}
	p.nodes.Store(name, counted)
	return counted
}

// filterPlugged filters a node for a pod that asks a device plugin or a DeviceClass for its GPUs.
func filterPlugged(request gpu.Request, info fwk.NodeInfo, node *countedNode) *fwk.Status {
	switch {
	case node.Err == nil && !request.Accepts(gpu.ModelOf(info.Node(), request.Resource)):
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) didn't have the GPU model")
	case node.Sharing > 0 && node.CountedAs(request.Resource) == nil:
		return fwk.NewStatus(fwk.Unschedulable, "node(s) had pods that share GPUs")
	}
	return nil
}

// Reserve chooses the devices that the pod gets on its node: those of the profile's policy, if it has scores, else
// those that fit best. Those of a device plugin the kubelet chooses; where GPUs are counted, there are none to choose.
//
// What other pods hold is counted with all reservations, those of pods that the snapshot lacks among them.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, name string) *fwk.Status {
	result, err := state.Read(Name)
	if err != nil {
		return nil // a pod without GPUs
	}
	request := result.(requestState).Request
	if !gpu.IsShared(request) {
		return nil
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(name)
	if err != nil {
		return fwk.AsStatus(err)
	}
	node := p.ledger.NodeForReservation(info, pod.UID)
	if !node.Fits(&request) {
		if there := p.ledger.NodeWithout(info, pod.UID); there.Fits(&request) {
			return fwk.AsStatus(errReservedByOthers)
		}
		return fwk.NewStatus(fwk.Unschedulable, "Insufficient GPU")
	}
	if node.CountedAs(request.Resource) != nil {
		return nil
	}
	p.ledger.Reserve(pod.UID, name, p.choose(&request, pod, info, &node), request.Milli)
	return nil
}

// errReservedByOthers has the pod tried again soon: the next snapshot has the other pods, or they are gone.
var errReservedByOthers = errors.New("the node's devices are promised to pods that the scheduler's snapshot lacks")

func (p *Plugin) choose(request *gpu.Request, pod *v1.Pod, info fwk.NodeInfo, node *gpu.Node) uint64 {
	if selector := scoring.DeviceSelectorFor(compat.ProfileName(p.handle)); selector != nil {
		if devices, ok := selector.Devices(pod, info); ok && node.CanAllocate(devices, request) {
			return devices
		}
	}
	return node.BestFit(request)
}

// Unreserve takes the devices back.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	p.ledger.Release(pod.UID)
}

// SignPod says what the filter looks at, so that equal pods may be decided upon together.
func (*Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]compat.SignFragment, *fwk.Status) {
	request, err := requestOf(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	return []compat.SignFragment{{Key: Name, Value: request}}, nil
}

// configurationError returns what is wrong with the profile: another plugin would bind the pod, without its devices.
func (p *Plugin) configurationError() string {
	profile, ok := p.handle.(interface{ ListPlugins() *config.Plugins })
	if !ok {
		return ""
	}
	binders := profile.ListPlugins().Bind.Enabled
	first := slices.IndexFunc(binders, func(plugin config.Plugin) bool {
		return plugin.Name == Name || plugin.Name == names.DefaultBinder
	})
	if first >= 0 && binders[first].Name == Name {
		return ""
	}
	return fmt.Sprintf("profile %q does not bind by %s; enable it at bind, too", compat.ProfileName(p.handle), Name)
}
