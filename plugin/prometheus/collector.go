package prometheus

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// waitForNodes is how often a collector looks whether there are nodes, before its first round.
const waitForNodes = 200 * time.Millisecond

// Collector asks Prometheus again and again. Many goroutines may use it at a time.
type Collector struct {
	configuration *Configuration
	client        *client
	nodes         func() []string
	readings      atomic.Pointer[Readings]

	problem string          // why Prometheus cannot be asked; "" if it can
	puzzled map[string]bool // features of which no series was of a node here, and it was said
}

// New is a collector that has asked nothing yet.
//
// nodes are the names of the cluster's nodes at any time: from an informer, not from the snapshot of a scheduling cycle.
func New(configuration *Configuration, nodes func() []string) *Collector {
	register()
	made := &Collector{
		configuration: configuration, client: newClient(configuration.Prometheus), nodes: nodes, puzzled: map[string]bool{},
	}
	made.readings.Store(&Readings{configuration: configuration})
	return made
}

// Readings are the newest values.
func (c *Collector) Readings() *Readings { return c.readings.Load() }

// Configuration is what it was made with.
func (c *Collector) Configuration() *Configuration { return c.configuration }

// Run asks until ctx is done.
func (c *Collector) Run(ctx context.Context) {
	defer c.client.close()
	wait := waitForNodes
	for {
		if len(c.nodes()) > 0 {
			c.refresh(ctx)
			wait = seconds(c.configuration.RefreshSeconds)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// refresh is one round of questions.
func (c *Collector) refresh(ctx context.Context) {
	nodes := map[string]bool{}
	for _, name := range c.nodes() {
		nodes[name] = true
	}
	brought, problems := map[string][]found{}, map[string]error{}
	var mutex sync.Mutex
	var all sync.WaitGroup
	unready := c.client.refresh()
	asked := 0
	for name, feature := range c.configuration.Features {
		if feature.Query == "" {
			continue
		}
		asked++
		if unready != nil {
			problems[name] = unready
			continue
		}
		all.Go(func() {
			values, times, err := c.feature(ctx, feature)
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				problems[name] = err
				return
			}
			brought[name] = c.join(name, values, times, nodes)
		})
	}
	all.Wait()
	now := time.Now()
	c.readings.Store(c.Readings().next(brought, nodes, now, countDropped))
	countRound(asked, len(problems))
	showAges(c.Readings(), nodes, now)
	c.tell(asked, problems)
}

func (c *Collector) feature(ctx context.Context, feature Feature) (values, times []series, err error) {
	if values, err = c.client.ask(ctx, feature.Query); err != nil {
		return nil, nil, err
	}
	times, err = c.client.ask(ctx, feature.SampledAt)
	return values, times, err
}

// whose is the node of a series, and of latencies the users.
type whose struct{ node, user string }

// join puts values and the times of their samples together. A value without a time is none.
func (c *Collector) join(name string, values, times []series, nodes map[string]bool) []found {
	ages := map[whose]float64{}
	for _, each := range times {
		key := c.whose(name, each)
		age := each.time - each.value
		if known, there := ages[key]; !there || age < known || math.IsNaN(known) {
			ages[key] = age
		}
	}
	var made []found
	strange := ""
	matched := false
	for _, each := range values {
		key := c.whose(name, each)
		if !nodes[key.node] {
			countDropped(droppedUnknown)
			strange = each.labels[c.label(name)]
			continue
		}
		matched = true
		if age, there := ages[key]; there {
			made = append(made, found{key.node, key.user, each.value, age})
		}
	}
	if strange != "" && !matched && !c.puzzled[name] {
		c.puzzled[name] = true
		klog.InfoS("No series is of a node of this cluster; nodes.label, nodes.pattern and nodes.names say which it is of",
			"feature", name, "label", c.label(name), "example", strange)
	}
	return made
}

func (c *Collector) whose(name string, each series) whose {
	feature := c.configuration.Features[name]
	user := ""
	if name == Latency && feature.UserLabel != "" {
		user = each.labels[feature.UserLabel]
	}
	return whose{c.configuration.nodeOf(each.labels[c.label(name)]), user}
}

// label is the one that tells the node of a feature's series.
func (c *Collector) label(name string) string {
	if own := c.configuration.Features[name].NodeLabel; own != "" {
		return own
	}
	return c.configuration.Nodes.Label
}

// tell logs a line when Prometheus goes, and one when it is back.
func (c *Collector) tell(asked int, problems map[string]error) {
	problem := ""
	for _, name := range Features {
		if err := problems[name]; err != nil && !errors.Is(err, context.Canceled) {
			problem = err.Error()
			if len(problems) < asked {
				problem = name + ": " + problem
			}
			break
		}
	}
	switch {
	case problem != "" && c.problem == "":
		klog.InfoS("Prometheus cannot be asked; what is known grows old", "error", problem)
	case problem == "" && c.problem != "":
		klog.InfoS("Prometheus can be asked again")
	}
	c.problem = problem
}
