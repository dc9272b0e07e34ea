package prometheus

import "time"

// Value is one that is known without a Prometheus.
type Value struct {
	Feature, Node, User string
	Value               float64
	Age                 float64 // seconds
}

// Fixed is a collector that asks nobody and knows some values at a time: for tests of those who decide by them.
func Fixed(configuration *Configuration, values []Value, now time.Time) *Collector {
	brought, nodes := map[string][]found{}, map[string]bool{}
	for _, each := range values {
		nodes[each.Node] = true
		brought[each.Feature] = append(brought[each.Feature], found{each.Node, each.User, each.Value, each.Age})
	}
	made := New(configuration, func() []string { return nil })
	made.readings.Store(made.Readings().next(brought, nodes, now, func(string) {}))
	return made
}
