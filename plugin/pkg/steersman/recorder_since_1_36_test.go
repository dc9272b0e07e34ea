//go:build !before1.36

package steersman

import "k8s.io/client-go/tools/events"

type eventRecorder = events.EventRecorderLogger
