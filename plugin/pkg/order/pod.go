package order

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/orders"
	"steersman.dev/plugin/internal/podowner"
)

const (
	// secondsKey is the annotation of a pod's run time in seconds, which counts before its activeDeadlineSeconds.
	secondsKey = "steersman.dev/expected-seconds"
	maxSeconds = 1e15
)

// statedSeconds returns the estimate of a pod that is known at its arrival, NaN: from what ended before. An annotation
// that is not a number of seconds does not count.
func statedSeconds(pod *v1.Pod, source orders.Source) float64 {
	switch source {
	case orders.History:
		return math.NaN()
	case orders.None:
		return orders.UnknownSeconds
	}
	seconds := stated(pod)
	if math.IsNaN(seconds) && source == orders.Stated {
		return orders.UnknownSeconds
	}
	return seconds
}

// stated returns the run time that a pod states, NaN for none.
func stated(pod *v1.Pod) float64 {
	seconds, err := strconv.ParseFloat(strings.TrimSpace(pod.Annotations[secondsKey]), 64)
	if err == nil && seconds > 0 && seconds < maxSeconds {
		return seconds
	}
	if deadline := pod.Spec.ActiveDeadlineSeconds; deadline != nil {
		return float64(*deadline)
	}
	return math.NaN()
}

// kindOf returns what tells the run time of a pod.
func kindOf(pod *v1.Pod) *orders.PodKind {
	kind := &orders.PodKind{Requests: requestsOf(pod), Owner: podowner.Of(pod), Stated: stated(pod)}
	if len(pod.Spec.Containers) > 0 {
		kind.Image, _, _ = strings.Cut(pod.Spec.Containers[0].Image, "@")
		if colon := strings.LastIndex(kind.Image, ":"); colon > strings.LastIndex(kind.Image, "/") {
			kind.Image = kind.Image[:colon]
		}
	}
	return kind
}

// requestsOf returns what a pod requests, as kube-scheduler will count it on the pod's node. GPUs of an invalid request
// do not count; where it is to be told, another plugin does.
func requestsOf(pod *v1.Pod) orders.Requests {
	resource := (&framework.PodInfo{Pod: pod}).CalculateResource().Resource
	requests := orders.Requests{
		MilliCPU: resource.GetMilliCPU(), Memory: resource.GetMemory(), EphemeralStorage: resource.GetEphemeralStorage(),
	}
	if devices, err := gpu.RequestOf(pod); err == nil && devices.Count > 0 {
		requests.GPUs, requests.GPUMilli, requests.GPUResource = devices.Count, devices.Milli, devices.Resource
	}
	var extended []string
	for name, amount := range resource.GetScalarResources() {
		if string(name) != requests.GPUResource && amount > 0 {
			extended = append(extended, fmt.Sprintf("%s=%d", name, amount))
		}
	}
	slices.Sort(extended)
	requests.Extended = strings.Join(extended, ",")
	return requests
}
