package orders

import (
	"container/list"
	"math"
	"regexp"
	"sync"

	"steersman.dev/plugin/internal/podowner"
)

// Run times of like pods are a histogram over logarithmic bins, at four levels: all pods, those of the same requests,
// of the same owner, and of both. Each level is smoothed by the one above it, as if that had added priorPods pods. The
// estimate is the median of the last level. core/src/history.rs has the same, and its source.
const (
	binsPerOctave = 2
	bins          = 48 // from 1 s to 2^24 s, 194 days
	priorPods     = 4.0
	// While nothing has ended these bins are equally likely: from 16 s to 12 days, with a median of 68 minutes.
	firstPriorLow, firstPriorHigh = 8, 40
	spreadShare                   = 0.9

	// maxGroups is how many groups are kept, see RunTimes.
	maxGroups = 20_000
	// chances is how many groups are kept, and count as used, while one of which a single pod has ended is looked for.
	chances = 16
)

// Requests is what a pod requests, as far as it tells its run time.
type Requests struct {
	MilliCPU, Memory, EphemeralStorage int64
	GPUs, GPUMilli                     int64 // number of devices, and milli of each
	GPUResource                        string
	Extended                           string // other resources, NAME=AMOUNT in order
}

// group is pods whose run times are told apart; a part that is not set is any.
type group struct {
	requests    Requests
	owner       podowner.Owner
	hasRequests bool
	hasOwner    bool
}

type histogram struct {
	group  group
	counts [bins]float64
	ended  float64
}

func (h *histogram) add(bin int) {
	h.counts[bin]++
	h.ended++
}

// RunTimes learns the run times of pods as they end. Several goroutines may use it.
//
// An owner of which nothing has ended yet says nothing: its namespace stands for it, in which each owner counts once,
// so that Jobs of one pod teach what the next Job may take.
//
// Of too many groups the one that was not used for longest is forgotten, or one among the next of which a single pod
// has ended: Jobs that never run again would drive out those that run each day.
type RunTimes struct {
	mutex  sync.Mutex
	all    histogram
	most   int                     // groups
	groups map[group]*list.Element // in used
	used   *list.List              // *histogram, the one that was used last first
}

// NewRunTimes returns one of which nothing has ended.
func NewRunTimes() *RunTimes {
	return &RunTimes{most: maxGroups, groups: map[group]*list.Element{}, used: list.New()}
}

// numberOfRun is what a CronJob (minutes), Argo's CronWorkflow (seconds since 1970) and people (days) append to the
// name of each run. src/steersman/orders/order.py has the same.
var numberOfRun = regexp.MustCompile(`-\d{8,}\z`)

// recurring returns by whom run times are told apart: Job/backup-29384720 and later runs of the CronJob are Job/backup.
func recurring(owner podowner.Owner) podowner.Owner {
	return podowner.Owner{Namespace: owner.Namespace, Name: numberOfRun.ReplaceAllLiteralString(owner.Name, "")}
}

// Note counts a pod that ended after so many seconds.
func (r *RunTimes) Note(requests Requests, owner podowner.Owner, seconds float64) {
	bin, owner := binOf(seconds), recurring(owner)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	isFirst := owner.Name != "" && !r.knows(owner)
	r.all.add(bin)
	r.create(group{requests: requests, hasRequests: true}).add(bin)
	counted := []podowner.Owner{owner}
	if isFirst {
		counted = append(counted, podowner.Owner{Namespace: owner.Namespace})
	}
	for _, each := range counted {
		r.create(group{owner: each, hasOwner: true}).add(bin)
		r.create(group{requests, each, true, true}).add(bin)
	}
}

// Estimate returns the estimated run time of a pod in seconds, and its spread: the logarithm of the 90th percentile
// over the median.
func (r *RunTimes) Estimate(requests Requests, owner podowner.Owner) (median, spread float64) {
	var p [bins]float64
	owner = recurring(owner)
	for k := firstPriorLow; k < firstPriorHigh; k++ {
		p[k] = 1.0 / (firstPriorHigh - firstPriorLow)
	}
	r.mutex.Lock()
	if !r.knows(owner) {
		owner.Name = ""
	}
	smooth(&p, &r.all)
	smooth(&p, r.find(group{requests: requests, hasRequests: true}))
	smooth(&p, r.find(group{owner: owner, hasOwner: true}))
	smooth(&p, r.find(group{requests, owner, true, true}))
	r.mutex.Unlock()
	median = quantile(&p, 0.5)
	return median, math.Log(quantile(&p, spreadShare) / median)
}

func (r *RunTimes) knows(owner podowner.Owner) bool {
	_, known := r.groups[group{owner: owner, hasOwner: true}]
	return known
}

// find returns the histogram of a group, which is used; nil if nothing has ended of it.
func (r *RunTimes) find(key group) *histogram {
	element := r.groups[key]
	if element == nil {
		return nil
	}
	r.used.MoveToFront(element)
	return element.Value.(*histogram)
}

// create returns the histogram of a group, which may be new.
func (r *RunTimes) create(key group) *histogram {
	if found := r.find(key); found != nil {
		return found
	}
	if len(r.groups) >= r.most {
		r.forgetOne()
	}
	made := &histogram{group: key}
	r.groups[key] = r.used.PushFront(made)
	return made
}

func (r *RunTimes) forgetOne() {
	for range chances {
		oldest := r.used.Back()
		if oldest.Value.(*histogram).ended <= 1 {
			break
		}
		r.used.MoveToFront(oldest)
	}
	delete(r.groups, r.used.Remove(r.used.Back()).(*histogram).group)
}

func binOf(seconds float64) int {
	if !(seconds > 1) { // NaN, too
		return 0
	}
	return int(math.Min(binsPerOctave*math.Log2(seconds), bins-1))
}

// smooth adds what ended of a group to the distribution p of the level above, which counts as priorPods pods.
func smooth(p *[bins]float64, ended *histogram) {
	if ended == nil {
		return // (0 + priorPods * p) / (0 + priorPods)
	}
	total := ended.ended + priorPods
	for k := range p {
		p[k] = (ended.counts[k] + float64(priorPods*p[k])) / total
	}
}

// quantile returns a quantile in seconds, interpolated geometrically within a bin.
func quantile(p *[bins]float64, share float64) float64 {
	before := 0.0
	for k, each := range p {
		if each > 0 && before+each >= share {
			return math.Exp2((float64(k) + (share-before)/each) / binsPerOctave)
		}
		before += each
	}
	return 1 << (bins / binsPerOctave)
}
