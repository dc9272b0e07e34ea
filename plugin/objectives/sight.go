package objectives

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/prometheus"
	"steersman.dev/plugin/scoring"
)

// ownerKey is an annotation for the owner of a pod without a controller, "Kind/name".
const ownerKey = "steersman/owner"

// lookInterval is how long measured values stay as they are, unless new ones come: so late may one be found to be stale.
const lookInterval = time.Second

// owner is whose a pod is; there is none where name is "".
type owner struct{ namespace, name string }

func ownerOf(pod *v1.Pod) owner {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return owner{pod.Namespace, controller.Kind + "/" + controller.Name}
	}
	return owner{pod.Namespace, pod.Annotations[ownerKey]}
}

// place is a node of the snapshot, as it was when it was looked at.
type place struct {
	generation int64
	history    history
	owners     map[owner]int
}

// sight is what there is to see of the cluster. Pods that came or went between two decisions are taken to have done so
// at the second one. Source: policies/telemetry_sight.py.
type sight struct {
	collector *prometheus.Collector // nil: nothing is measured
	now       func() time.Time

	nodes  scoring.Places
	places []place
	names  []string

	readings *prometheus.Readings // that the values below are of
	looked   time.Time
	columns  map[column]prometheus.Column
	then     struct{ requested, pods []float64 } // while the metrics were measured; NaN: that is not known
}

// column is a feature, and of latencies the users.
type column struct{ feature, user string }

// follow brings everything up to date with the snapshot.
func (s *sight) follow(infos []fwk.NodeInfo) {
	now := s.now()
	if s.nodes.Follow(infos) {
		s.replace(infos)
	}
	for n, info := range infos {
		if there := &s.places[n]; there.owners == nil || there.generation != info.GetGeneration() {
			there.generation, there.owners = info.GetGeneration(), map[owner]int{}
			for _, each := range info.GetPods() {
				if whose := ownerOf(each.GetPod()); whose.name != "" {
					there.owners[whose]++
				}
			}
			there.history.note(now, float64(info.GetRequested().GetMilliCPU()), float64(len(info.GetPods())))
		}
	}
}

// replace takes other nodes; those that stay keep their history.
func (s *sight) replace(infos []fwk.NodeInfo) {
	histories := make(map[string]history, len(s.names))
	for n, name := range s.names {
		histories[name] = s.places[n].history
	}
	s.places, s.names = make([]place, len(infos)), make([]string, len(infos))
	for n, info := range infos {
		if node := info.Node(); node != nil { // else it is gone, and its pods will follow
			s.names[n], s.places[n].history = node.Name, histories[node.Name]
		}
	}
	s.readings = nil
}

// measured is a feature of all nodes.
func (s *sight) measured(feature, user string) prometheus.Column {
	now := s.now()
	if readings := s.collector.Readings(); readings != s.readings || now.Sub(s.looked) >= lookInterval {
		s.readings, s.looked, s.columns = readings, now, map[column]prometheus.Column{}
		s.remember(now)
	}
	key := column{feature, user}
	found, there := s.columns[key]
	if !there {
		found = s.readings.Column(feature, user, s.names, s.looked)
		s.columns[key] = found
	}
	return found
}

// remember finds what was requested while the metrics were measured.
func (s *sight) remember(now time.Time) {
	cpu := s.readings.Column(prometheus.CPUUsed, "", s.names, now)
	connections := s.readings.Column(prometheus.Connections, "", s.names, now)
	s.then.requested, s.then.pods = make([]float64, len(s.places)), make([]float64, len(s.places))
	for n, each := range s.places {
		s.then.requested[n], s.then.pods[n] = math.NaN(), math.NaN()
		if cpu.Fresh[n] {
			s.then.requested[n] = each.history.requestedUntil(cpu.Taken[n])
		}
		if connections.Fresh[n] {
			s.then.pods[n] = each.history.podsAt(connections.Taken[n])
		}
	}
}

// show is what is seen of all nodes for a pod.
func (s *sight) show(pod *v1.Pod) *seen {
	count := len(s.places)
	found := &seen{
		capacity: make([]float64, count), requested: make([]float64, count), running: make([]float64, count),
		siblings: make([]float64, count), requestedSince: make([]float64, count), podsSince: make([]float64, count),
		limits: LimitsOf(pod), assumed: prometheus.Defaults().Assumptions,
	}
	request := resource.PodRequests(pod, resource.PodResourcesOptions{})
	found.podCPU, found.limited = float64(request.Cpu().MilliValue()), found.limits.Limited()
	whose := ownerOf(pod)
	for n := range s.places {
		info := s.nodes.All()[n]
		found.capacity[n] = float64(info.GetAllocatable().GetMilliCPU())
		found.requested[n] = float64(info.GetRequested().GetMilliCPU())
		found.running[n] = float64(len(info.GetPods()))
		if whose.name != "" {
			found.siblings[n] = float64(s.places[n].owners[whose])
		}
	}
	s.fill(found)
	return found
}

// fill writes what is measured, and where nothing is of any node what stands for it: CPU by requests, the number of pods
// for connections, and no traffic.
func (s *sight) fill(found *seen) {
	if s.collector != nil {
		found.assumed = s.collector.Configuration().Assumptions
		found.cpu = s.measured(prometheus.CPUUsed, "").Values
		found.network = s.measured(prometheus.NetworkReceived, "").Values
		found.connections = s.measured(prometheus.Connections, "").Values
		found.latency = s.measured(prometheus.Latency, found.limits.User).Values
		for n := range s.places {
			found.requestedSince[n] = orZero(found.requested[n] - s.then.requested[n])
			found.podsSince[n] = orZero(found.running[n] - s.then.pods[n])
		}
	} else {
		found.latency = unknown(len(s.places))
	}
	if !anyKnown(found.cpu) {
		found.cpu = make([]float64, len(s.places))
		for n := range s.places {
			found.cpu[n] = float64(float64(100*usePrior)*found.requested[n]) / found.capacity[n]
		}
	}
	if !anyKnown(found.connections) {
		found.connections = found.running
	}
	if !anyKnown(found.network) {
		found.network = make([]float64, len(s.places))
	}
}

func anyKnown(values []float64) bool {
	for _, value := range values {
		if !math.IsNaN(value) {
			return true
		}
	}
	return false
}

func unknown(count int) []float64 {
	made := make([]float64, count)
	for n := range made {
		made[n] = math.NaN()
	}
	return made
}

func orZero(value float64) float64 {
	if math.IsNaN(value) {
		return 0
	}
	return value
}
