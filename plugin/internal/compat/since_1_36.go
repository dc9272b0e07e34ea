//go:build !before1.36

package compat

import (
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
)

// EventRecorder is what a handle records events with.
type EventRecorder = events.EventRecorderLogger

// MaxScore is the highest score of a node.
const MaxScore = fwk.MaxScore
