package orders

import (
	"fmt"
	"sync"

	"steersman.dev/plugin/internal/podowner"
	"steersman.dev/plugin/pkg/core"
)

// maxGroups is how many groups of pods are kept, whose run times are told apart.
const maxGroups = 20_000

// Requests is what a pod requests, as far as it tells its run time.
type Requests struct {
	MilliCPU, Memory, EphemeralStorage int64
	GPUs, GPUMilli                     int64 // number of devices, and milli of each
	GPUResource                        string
	Extended                           string // other resources, NAME=AMOUNT in order
}

// PodKind is what tells the run time of a pod.
type PodKind struct {
	Requests Requests
	Owner    podowner.Owner
	Image    string  // of its first container, without a tag
	Stated   float64 // run time in seconds, NaN for none
}

func (p *PodKind) ofCore() *core.PodKind {
	return &core.PodKind{
		Requests: fmt.Sprint(p.Requests), Namespace: p.Owner.Namespace, Owner: p.Owner.Name, Image: p.Image, Stated: p.Stated,
	}
}

// RunTimes learns the run times of pods as they end, by the core, see core/src/run_times.rs. After the core stopped it
// begins anew. Several goroutines may use it.
type RunTimes struct {
	mutex    sync.Mutex
	most     int // groups
	instance *core.Instance
	runTimes *core.RunTimes
}

// NewRunTimes returns one of which nothing has ended.
func NewRunTimes() *RunTimes { return &RunTimes{most: maxGroups} }

// Note counts a pod that ended after so many seconds.
func (r *RunTimes) Note(pod *PodKind, seconds float64) {
	_ = r.ask(func(times *core.RunTimes) error { return times.Note(pod.ofCore(), seconds) })
}

// Estimate returns the mean of a pod's run time in seconds, and its spread: the logarithm of the 90th percentile over
// the median.
func (r *RunTimes) Estimate(pod *PodKind) (mean, spread float64) {
	err := r.ask(func(times *core.RunTimes) (err error) {
		mean, spread, err = times.Estimate(pod.ofCore())
		return err
	})
	if err != nil {
		return UnknownSeconds, 0
	}
	return mean, spread
}

func (r *RunTimes) ask(question func(*core.RunTimes) error) (err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.runTimes == nil {
		if r.instance, err = core.New(); err != nil {
			return err
		}
		if r.runTimes, err = core.NewRunTimes(r.instance, r.most); err != nil {
			r.runTimes = nil
			return err
		}
	}
	if err = question(r.runTimes); err != nil {
		r.runTimes = nil
		r.instance.Close()
	}
	return err
}
