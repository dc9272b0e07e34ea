//go:build !before1.36

package explain

import (
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// toSchedule is what a scheduling cycle takes of a pod.
func toSchedule(info *framework.PodInfo) *framework.QueuedPodInfo {
	return &framework.QueuedPodInfo{PodInfo: info}
}

func (i *informer) HasSyncedChecker() cache.DoneChecker { return synced{} }

type synced struct{}

var done = make(chan struct{})

func init() { close(done) }

func (synced) Name() string          { return "objects of a question" }
func (synced) Done() <-chan struct{} { return done }
