package objectives

import (
	"math"
	"sort"
	"time"
)

const (
	cpuWindow   = 15 * time.Second // over which CPU is thought to be measured: irate takes the last two samples
	historyKept = 10 * time.Minute
)

// history is what a node's pods requested, and how many there were, in the last minutes. Source:
// policies/telemetry_sight.py.
type history []change

// change is how it is from a time on: milli-CPU, and pods.
type change struct {
	at              time.Time
	requested, pods float64
}

// note says how it is from now on.
func (h *history) note(now time.Time, requested, pods float64) {
	*h = append(*h, change{now, requested, pods})
	old := 0
	for old+1 < len(*h) && (*h)[old+1].at.Before(now.Add(-historyKept)) {
		old++
	}
	*h = (*h)[old:]
}

// until is the number of changes up to a time.
func (h history) until(at time.Time) int {
	return sort.Search(len(h), func(i int) bool { return h[i].at.After(at) })
}

// podsAt is how many pods there were at a time; NaN: that is not known.
func (h history) podsAt(at time.Time) float64 {
	last := h.until(at)
	if last == 0 {
		return math.NaN()
	}
	return h[last-1].pods
}

// requestedUntil is the mean request in the time up to a moment in which CPU is measured; NaN: that is not known.
func (h history) requestedUntil(end time.Time) float64 {
	last := h.until(end)
	if last == 0 {
		return math.NaN()
	}
	begin := end.Add(-cpuWindow)
	if h[0].at.After(begin) {
		begin = h[0].at
	}
	if !h[last-1].at.After(begin) || !end.After(begin) {
		return h[last-1].requested
	}
	total, to := 0.0, end
	for i := last - 1; i >= 0 && to.After(begin); i-- {
		from := h[i].at
		if from.Before(begin) {
			from = begin
		}
		total += float64(h[i].requested * to.Sub(from).Seconds())
		to = from
	}
	return total / end.Sub(begin).Seconds()
}
