package objectives

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Annotations of a pod that say how far it may be from its users, in milliseconds: ours, and reference C's. The first
// one that is there counts.
var (
	softKeys = []string{"steersman.dev/latency-soft-constraint", "latencySoftConstraint"}
	hardKeys = []string{"steersman.dev/latency-hard-constraint", "latencyHardConstraint"}
)

// userKey is an annotation with the name of the pod's users, as the probe of latencies calls them.
const userKey = "steersman.dev/latency-user"

const shown = 40 // bytes of an annotation in a complaint

// Limits are how far a pod may be from its users, in milliseconds; +Inf is no limit.
type Limits struct {
	Soft    float64  // it would rather be nearer than this
	Hard    float64  // where some node keeps it, the pod goes to such a node
	User    string   // the name of its users; "" for all, of whom the largest latency of a node counts
	Ignored []string // what is wrong with annotations that make no sense; the pod is without these limits
}

// LimitsOf are those of a pod's annotations. One that makes no sense does not keep the pod from being scheduled.
func LimitsOf(pod *v1.Pod) Limits {
	found := Limits{User: pod.Annotations[userKey]}
	found.Soft = found.milliseconds(pod.Annotations, softKeys)
	found.Hard = found.milliseconds(pod.Annotations, hardKeys)
	return found
}

// Limited says whether there is a limit at all.
func (l *Limits) Limited() bool { return !math.IsInf(l.Soft, 1) || l.HasHard() }

// HasHard says whether there is a hard limit.
func (l *Limits) HasHard() bool { return !math.IsInf(l.Hard, 1) }

func (l *Limits) milliseconds(annotations map[string]string, keys []string) float64 {
	for _, key := range keys {
		text, there := annotations[key]
		if !there {
			continue
		}
		number, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err == nil && number > 0 && !math.IsInf(number, 0) && !strings.ContainsAny(text, "xX_") {
			return number
		}
		text = text[:min(len(text), shown)]
		l.Ignored = append(l.Ignored, fmt.Sprintf(
			"annotation %s: %q is no number of milliseconds above 0, such as 100; it is ignored", key, text))
		break
	}
	return math.Inf(1)
}
