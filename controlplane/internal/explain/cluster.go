package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	configvalidation "k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

const defaultConfiguration = `{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}`

var (
	// Nothing that is asked of the scheduler reads the API. What preemption would delete is not there.
	client   = kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://127.0.0.1:1", Transport: nothing{}, QPS: -1})
	recorder = profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()}))
)

// nothing is an API server without objects.
type nothing struct{}

func (nothing) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: request}, nil
}

// cluster is a kube-scheduler that knows the objects of a question.
type cluster struct {
	scheduler *scheduler.Scheduler
	factory   *informerFactory
}

func newCluster(ctx context.Context, configuration json.RawMessage, objects []runtime.Object) (*cluster, error) {
	settings, err := decodeConfiguration(configuration)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	factory := newInformerFactory()
	found, err := scheduler.New(ctx, client, factory, nil, recorder,
		scheduler.WithComponentConfigVersion(settings.APIVersion),
		scheduler.WithProfiles(settings.Profiles...),
		scheduler.WithPercentageOfNodesToScore(settings.PercentageOfNodesToScore),
		scheduler.WithExtenders(settings.Extenders...),
		scheduler.WithParallelism(1), // with more, equal scores are decided by chance
	)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	for i, object := range objects {
		if pod, is := object.(*v1.Pod); is && (pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed) {
			continue // the scheduler does not list finished pods
		}
		if err := factory.add(object); err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
	}
	return &cluster{found, factory}, nil
}

func decodeConfiguration(raw json.RawMessage) (*config.KubeSchedulerConfiguration, error) {
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage(defaultConfiguration)
	}
	object, kind, err := configscheme.Codecs.UniversalDecoder().Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	settings, is := object.(*config.KubeSchedulerConfiguration)
	if !is {
		return nil, fmt.Errorf("%s is not a KubeSchedulerConfiguration", kind)
	}
	settings.APIVersion = kind.GroupVersion().String()
	if err := configvalidation.ValidateKubeSchedulerConfiguration(settings); err != nil {
		return nil, err
	}
	return settings, nil
}

// decide returns what each plugin says about a pod, and the node of a scheduling cycle.
func (c *cluster) decide(ctx context.Context, pod *v1.Pod, question *Question) (Decision, error) {
	plugins, known := c.scheduler.Profiles[pod.Spec.SchedulerName]
	if !known {
		return Decision{}, fmt.Errorf("spec.schedulerName: no profile is named %q", pod.Spec.SchedulerName)
	}
	snapshot, is := plugins.SnapshotSharedLister().(*cache.Snapshot)
	if !is {
		return Decision{}, errors.New("the framework has an unexpected snapshot")
	}
	if err := c.scheduler.Cache.UpdateSnapshot(klog.FromContext(ctx), snapshot); err != nil {
		return Decision{}, err
	}
	decision := Decision{Feasible: []string{}, Refused: map[string]Verdict{}}
	for _, plugin := range plugins.PreEnqueuePlugins() {
		if status := plugin.PreEnqueue(ctx, pod); !status.IsSuccess() {
			decision.Gated = verdict(status.WithPlugin(plugin.Name()))
			break
		}
	}
	if err := decision.explain(ctx, plugins, snapshot, pod); err != nil {
		return Decision{}, err
	}
	if err := c.choose(ctx, &decision, plugins, pod, question); err != nil {
		return Decision{}, err
	}
	return decision, nil
}

// explain asks every filter about every node, and every score plugin about the feasible ones.
func (d *Decision) explain(ctx context.Context, plugins framework.Framework, snapshot *cache.Snapshot, pod *v1.Pod) error {
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		return err
	}
	state := framework.NewCycleState()
	only, status, restricting := plugins.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		d.Everywhere = verdict(status)
		return nil
	}
	feasible := []fwk.NodeInfo{}
	for _, node := range nodes {
		name := node.Node().Name
		if !only.AllNodes() && !only.NodeNames.Has(name) {
			// As the scheduler reports nodes that it does not even look at.
			by := sets.List(restricting)
			reason := fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", by)
			d.Refused[name] = Verdict{by[0], []string{reason}, fwk.UnschedulableAndUnresolvable.String()}
			continue
		}
		if status := plugins.RunFilterPluginsWithNominatedPods(ctx, state, pod, node); !status.IsSuccess() {
			d.Refused[name] = *verdict(status)
			continue
		}
		feasible = append(feasible, node)
		d.Feasible = append(d.Feasible, name)
	}
	if len(feasible) == 0 || !plugins.RunPreScorePlugins(ctx, state, pod, feasible).IsSuccess() {
		return nil // an error is the outcome of the cycle, too
	}
	scored, status := plugins.RunScorePlugins(ctx, state, pod, feasible)
	if !status.IsSuccess() {
		return nil
	}
	d.Scores, d.Total = map[string]map[string]int64{}, map[string]int64{}
	for _, node := range scored {
		d.Total[node.Name] = node.TotalScore
		for _, score := range node.Scores {
			if d.Scores[score.Name] == nil {
				d.Scores[score.Name] = map[string]int64{}
			}
			d.Scores[score.Name][node.Name] = score.Score
		}
	}
	return nil
}

// choose runs a scheduling cycle, with preemption if the question is about it.
func (c *cluster) choose(ctx context.Context, decision *Decision, plugins framework.Framework, pod *v1.Pod, question *Question) error {
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return err
	}
	state := framework.NewCycleState()
	chosen, err := c.scheduler.SchedulePod(ctx, plugins, state, toSchedule(info))
	if err != nil {
		decision.Message = err.Error()
		var refused *framework.FitError
		if question.PreemptFrom == nil || !errors.As(err, &refused) {
			return nil
		}
		decision.Preemption, err = c.preempt(ctx, plugins, state, pod, refused, *question.PreemptFrom)
		return err
	}
	decision.Node = chosen.SuggestedHost
	if !question.Assume {
		return nil
	}
	placed := pod.DeepCopy()
	placed.Spec.NodeName = chosen.SuggestedHost
	if err := c.scheduler.Cache.AssumePod(klog.FromContext(ctx), placed); err != nil {
		return err
	}
	return plugins.RunReservePluginsReserve(ctx, state, placed, chosen.SuggestedHost).AsError()
}

func verdict(status *fwk.Status) *Verdict {
	return &Verdict{Plugin: status.Plugin(), Reasons: status.Reasons(), Code: status.Code().String()}
}
