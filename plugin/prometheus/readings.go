package prometheus

import (
	"maps"
	"math"
	"slices"
	"time"
)

// mostUsers is how many groups of users latencies are kept of.
const mostUsers = 64

// sample is a value, and when its newest sample was taken.
type sample struct {
	value float64
	taken time.Time
}

// byNode are the values of one feature, of latencies those to one group of users.
type byNode map[string]sample

// Readings are the newest values. They do not change.
type Readings struct {
	configuration *Configuration
	values        map[string]byNode // by feature, but for latencies
	latency       map[string]byNode // by users
}

// Column is one feature of nodes.
type Column struct {
	Values []float64   // with what stands for stale and missing ones; NaN where nothing does
	Fresh  []bool      // it is measured, and not stale
	Taken  []time.Time // when; the zero time where there never was a value
}

// Column is a feature of nodes that are given by name, at a time. user: of latencies, the group of users; "" for all, of
// whom the largest latency counts, which is as old as the oldest of them.
func (r *Readings) Column(feature, user string, nodes []string, now time.Time) Column {
	found := Column{make([]float64, len(nodes)), make([]bool, len(nodes)), make([]time.Time, len(nodes))}
	limit, when := r.configuration.ageLimit(feature), r.configuration.Features[feature].WhenStale
	var fresh []float64
	for i, node := range nodes {
		found.Values[i] = math.NaN()
		last, there := r.last(feature, user, node)
		if !there {
			continue
		}
		found.Taken[i] = last.taken
		found.Fresh[i] = !last.taken.IsZero() && now.Sub(last.taken) <= limit
		if found.Fresh[i] {
			fresh = append(fresh, last.value)
		}
		if found.Fresh[i] || when == whenLast {
			found.Values[i] = last.value
		}
	}
	if when == whenImpute && len(fresh) > 0 {
		middle := median(fresh)
		for i := range nodes {
			if !found.Fresh[i] {
				found.Values[i] = middle
			}
		}
	}
	return found
}

// last is the last value of a node, whatever its age.
func (r *Readings) last(feature, user, node string) (sample, bool) {
	if feature != Latency {
		found, there := r.values[feature][node]
		return found, there
	}
	if user != "" {
		found, there := r.latency[user][node]
		return found, there
	}
	found, any := sample{value: math.Inf(-1)}, false
	for _, kept := range r.latency {
		each, there := kept[node]
		if !any || each.taken.Before(found.taken) {
			found.taken = each.taken // the zero time, which is before all others, where there never was a value
		}
		any = true
		if there {
			found.value = max(found.value, each.value)
		}
	}
	return found, !math.IsInf(found.value, -1)
}

func median(values []float64) float64 {
	slices.Sort(values)
	half := len(values) / 2
	if len(values)%2 == 1 {
		return values[half]
	}
	return (values[half-1] + values[half]) / 2
}

// found is what the questions for a feature brought for one node: whose latency, the value, its age in seconds.
type found struct {
	node, user string
	value, age float64
}

// Reasons for values that were not taken.
const (
	droppedInfinite = "not_finite"
	droppedUnknown  = "unknown_node"
	droppedUsers    = "too_many_users"
)

// next are these readings and what a round of questions brought, without nodes that are no more. dropped is told of
// every value that is not taken.
func (r *Readings) next(
	brought map[string][]found, nodes map[string]bool, now time.Time, dropped func(string),
) *Readings {
	made := &Readings{r.configuration, map[string]byNode{}, map[string]byNode{}}
	gone := func(node string, _ sample) bool { return !nodes[node] }
	for _, pair := range []struct{ from, to map[string]byNode }{{r.values, made.values}, {r.latency, made.latency}} {
		for key, kept := range pair.from {
			copied := maps.Clone(kept)
			maps.DeleteFunc(copied, gone)
			pair.to[key] = copied
		}
	}
	for feature, all := range brought {
		for _, each := range all {
			if reason := made.take(feature, each, now); reason != "" {
				dropped(reason)
			}
		}
	}
	return made
}

// take takes a value, of several of a node the newest, of equally new ones the largest. It says why it does not.
func (r *Readings) take(feature string, each found, now time.Time) string {
	if math.IsNaN(each.value) || math.IsInf(each.value, 0) || math.IsNaN(each.age) || math.IsInf(each.age, 0) {
		return droppedInfinite
	}
	all, key := r.values, feature
	if feature == Latency {
		all, key = r.latency, each.user
		if all[key] == nil && len(all) >= mostUsers {
			return droppedUsers
		}
	}
	if all[key] == nil {
		all[key] = byNode{}
	}
	made := sample{max(each.value, 0), now.Add(-seconds(min(max(each.age, 0), 1e9)))}
	known, there := all[key][each.node]
	if !there || made.taken.After(known.taken) || made.taken.Equal(known.taken) && made.value > known.value {
		all[key][each.node] = made
	}
	return ""
}
