// Package explain answers what kube-scheduler would do: for clusters given as objects, the verdict of each filter and the
// score of each plugin on every node. It links kube-scheduler's own framework, plugins and cache.
//
// A question is a line of JSON, and so is its answer. Nothing is remembered between questions.
package explain

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
)

// Question is a cluster and pods to schedule there.
type Question struct {
	// Configuration is a KubeSchedulerConfiguration; without one the defaults hold.
	Configuration json.RawMessage `json:"configuration"`
	// Objects of the cluster, with apiVersion and kind, nodes in the order in which the scheduler learns of them.
	Objects []json.RawMessage `json:"objects"`
	// Pods to schedule, each in the same cluster, unless Assume is set.
	Pods []json.RawMessage `json:"pods"`
	// Assume puts each pod on the node that was chosen for it before the next one is scheduled.
	Assume bool `json:"assume"`
	// Admitted asks for the objects and pods as the API server would store them.
	Admitted bool `json:"admitted"`
	// PreemptFrom asks what preemption makes of pods that fit nowhere; from this one of the potential nodes on.
	PreemptFrom *int32 `json:"preemptFrom"`
}

// Answer to a question: either Error, or a decision for each pod.
type Answer struct {
	Error   string           `json:"error,omitempty"`
	Objects []runtime.Object `json:"objects,omitempty"`
	Pods    []Decision       `json:"pods"`
}

// Decision about a pod.
type Decision struct {
	// Node that the scheduling cycle chooses, "" for none; Message says why.
	Node    string `json:"node"`
	Message string `json:"message,omitempty"`
	// Gated is the verdict of the plugin that keeps the pod out of the queue.
	Gated *Verdict `json:"gated,omitempty"`
	// Everywhere is the verdict of a PreFilter plugin that refuses all nodes.
	Everywhere *Verdict `json:"everywhere,omitempty"`
	// Feasible nodes in the scheduler's order, regardless of percentageOfNodesToScore.
	Feasible []string `json:"feasible"`
	// Refused nodes, with the verdict of the first filter that refuses each.
	Refused map[string]Verdict `json:"refused"`
	// Scores of the feasible nodes by plugin, normalized and weighted, and their sum.
	Scores map[string]map[string]int64 `json:"scores"`
	Total  map[string]int64            `json:"total"`
	// Preemption, where it was asked for and the pod fits nowhere.
	Preemption *Preemption `json:"preemption,omitempty"`
	// Pod as the API server would store it.
	Pod *v1.Pod `json:"pod,omitempty"`
}

// Verdict of a plugin.
type Verdict struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
	// Code of the status, such as Unschedulable or UnschedulableAndUnresolvable.
	Code string `json:"code"`
}

// Serve answers questions until they end.
func Serve(ctx context.Context, questions io.Reader, answers io.Writer) error {
	klog.SetLogger(klog.New(nil)) // what the scheduler logs is part of no answer
	reader, encoder := bufio.NewReader(questions), json.NewEncoder(answers)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 0 {
			if err := encoder.Encode(answer(ctx, line)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func answer(ctx context.Context, line []byte) Answer {
	var question Question
	if err := json.Unmarshal(line, &question); err != nil {
		return Answer{Error: err.Error()}
	}
	objects, err := allAdmitted("objects", question.Objects)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	pods, err := allAdmitted("pods", question.Pods)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cluster, err := newCluster(ctx, question.Configuration, objects)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	found := Answer{Pods: make([]Decision, len(pods))}
	for i, object := range pods {
		pod, is := object.(*v1.Pod)
		if !is {
			return Answer{Error: fmt.Sprintf("pods[%d]: is not a Pod", i)}
		}
		if found.Pods[i], err = cluster.decide(ctx, pod, &question); err != nil {
			return Answer{Error: fmt.Sprintf("pods[%d]: %v", i, err)}
		}
		if question.Admitted {
			found.Pods[i].Pod = pod
		}
	}
	if question.Admitted {
		found.Objects = objects
	}
	return found
}
