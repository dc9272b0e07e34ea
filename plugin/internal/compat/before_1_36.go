//go:build before1.36

package compat

import "k8s.io/client-go/tools/events"

// EventRecorder is what a handle records events with.
type EventRecorder = events.EventRecorder

// MaxScore is the highest score of a node, MaxNodeScore.
const MaxScore int64 = 100
