package native

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/scoring"
	"steersman.dev/plugin/pkg/core"
)

// cellsKept is how many scores the core keeps, of all classes together: 34 MiB. A network keeps features of each, a
// fraction of whose number take as much.
const (
	cellsKept    = 1 << 22
	featuresKept = 1 << 19
)

// cluster is the scheduler's snapshot, and what the core knows of it. Only nodes that changed are read again.
type cluster struct {
	policy  *Policy
	places  scoring.Places
	seen    []scoring.Revision // by node, that was looked at
	nodes   []node
	owners  *owners // nil unless the policy needs them
	changed []int   // nodes that the core does not know as they are now

	instance *core.Instance
	decider  *core.Decider // nil: the core knows nothing yet
	known    *numbering
	classes  classes
	numbers  []int64
}

// look reads the nodes of a snapshot that changed.
func (c *cluster) look(infos []fwk.NodeInfo) {
	if c.places.Follow(infos) {
		c.seen, c.nodes, c.changed = make([]scoring.Revision, len(infos)), make([]node, len(infos)), nil
		c.known = nil
		if c.owners = nil; !c.policy.Pointwise {
			c.owners = newOwners(len(infos))
		}
	}
	for n, info := range infos {
		if revision := scoring.RevisionOf(info); revision != c.seen[n] {
			c.seen[n] = revision
			c.set(n, nodeOf(info, gpu.Assumed.NodeState(info).GPUs))
			if c.owners != nil {
				c.owners.recount(n, info)
			}
		}
	}
}

// question is what is asked about a pod.
type question struct {
	class
	ownerNodes, ownerPods []int64 // where how many pods of its owner run, if the policy looks at that
}

// questionOf returns that of a pod that may run on the chosen nodes.
func (c *cluster) questionOf(wanted Pod, pod *v1.Pod, chosen []int) question {
	result := question{class: class{Pod: wanted}}
	if c.owners != nil {
		among := make([]byte, len(c.nodes))
		for _, n := range chosen {
			among[n] = 1
		}
		result.among = string(among)
		result.ownerNodes, result.ownerPods = c.owners.of(pod)
	}
	return result
}

// scores returns those of all nodes.
func (c *cluster) scores(asked question) (core.Scores, error) {
	number, err := c.tell(asked.class)
	if err == nil && c.owners != nil {
		err = c.decider.Observe(len(c.nodes), asked.ownerNodes, asked.ownerPods)
	}
	if err != nil {
		return nil, err
	}
	return c.decider.Scores(number, len(c.nodes))
}

// devices returns those that a pod would get on a node in a state that only this question is about.
func (c *cluster) devices(wanted Pod, n int, state node) (uint64, error) {
	if request := &wanted.GPU; !c.policy.Pointwise || request.Count != 1 || request.Milli == gpu.Whole {
		return state.gpus.BestFit(request), nil // as the core does
	}
	if !state.equals(&c.nodes[n]) {
		c.seen[n] = scoring.Revision{} // to be looked at again
		c.set(n, state)
	}
	number, err := c.tell(class{Pod: wanted})
	if err != nil {
		return 0, err
	}
	return c.decider.Devices(number, n)
}

// isLost reports whether what is kept may be wrong: the core stopped.
func (c *cluster) isLost() bool { return c.instance != nil && c.instance.IsLost() }

func (c *cluster) set(n int, now node) {
	was := &c.nodes[n]
	if !now.offersTheSame(was) {
		c.known = nil // rare, so that everything is described anew
	} else if now.equals(was) {
		return
	}
	c.nodes[n] = now
	c.changed = append(c.changed, n)
}

// tell tells the core what changed, and of a class; it returns the number of the class.
func (c *cluster) tell(wanted class) (number int, err error) {
	if c.decider == nil || c.known == nil {
		return 0, c.describe(wanted)
	}
	for _, n := range c.changed {
		c.numbers = c.known.appendLeft(c.numbers[:0], &c.nodes[n])
		if err := c.decider.SetPods(n, c.numbers); err != nil {
			c.known = nil
			return 0, err
		}
	}
	c.changed = c.changed[:0]
	number, known := c.classes.numbers[wanted]
	if !known {
		if number, err = c.addClass(wanted); err != nil {
			c.known = nil
		}
	}
	return number, err
}

// describe describes everything anew, with one class.
func (c *cluster) describe(wanted class) (err error) {
	var described core.Description
	c.policy.describe(&described)
	known := newNumbering(c.policy)
	for n := range c.nodes {
		known.add(&c.nodes[n])
	}
	if c.policy.content != nil {
		types, err := json.Marshal(known.described)
		if err != nil {
			return err
		}
		described.Bytes("policy.types", types)
	}
	known.describe(&described, c.nodes)
	if !c.policy.Pointwise {
		c.describeSites(&described, known)
	}
	c.classes = classes{numbers: map[class]int{}}
	c.describeClass(&described, known, wanted, 0)
	count := len(c.nodes)
	described.Bools("terms.matches", nil, 1, 0)
	described.Bools("terms.conflicts", nil, 0, 0)
	describeTerms(&described, count)
	if c.instance == nil {
		c.instance, err = core.New()
	}
	switch {
	case err != nil:
	case c.decider != nil:
		err = c.decider.Replace(&described)
	default:
		c.decider, err = core.NewDecider(c.instance, &described)
	}
	if err == nil {
		c.known, c.changed = known, c.changed[:0]
	}
	return err
}

// addClass tells the core of a class; if there are too many, all others are forgotten.
func (c *cluster) addClass(wanted class) (int, error) {
	var changes core.Description
	most := cellsKept
	if !c.policy.Pointwise {
		most = featuresKept
	}
	if len(c.classes.numbers) >= max(1, most/max(1, len(c.nodes))) {
		c.classes = classes{numbers: map[class]int{}}
	}
	number, constraints := len(c.classes.numbers), len(c.classes.constraints)
	changes.Int64s("kept", []int64{int64(number), int64(constraints), 1, 0, 0, 0, 0, 0}, 8)
	c.describeClass(&changes, c.known, wanted, constraints)
	changes.Bools("terms.matches", nil, 0, 0)
	changes.Bools("terms.more_matches", nil, 1, 0)
	changes.Bools("terms.conflicts", nil, 0, 0)
	describeTerms(&changes, len(c.nodes))
	return number, c.decider.Follow(&changes)
}

// describeClass writes classes.* of one class, where so many rows of constraints are known.
func (c *cluster) describeClass(described *core.Description, known *numbering, wanted class, constraints int) {
	required, row := wanted.constraint(), 0
	for row < constraints && c.classes.constraints[row] != required {
		row++
	}
	var allowed []bool
	if row == constraints {
		c.classes.constraints = append(c.classes.constraints, required)
		for n := range c.nodes {
			allowed = append(allowed, required.allows(n, &c.nodes[n]))
		}
	}
	c.classes.numbers[wanted] = len(c.classes.numbers)
	request := make([]int64, known.width())
	request[cpu], request[memory], request[pods] = wanted.CPU, wanted.Memory, 1
	described.Int64s("classes.request", request, 1, len(request))
	described.Int64s("classes.nonzero", []int64{wanted.CPUScored, wanted.MemoryScored}, 1, 2)
	described.Int64s("classes.gpu_count", []int64{wanted.GPU.Count}, 1)
	described.Int64s("classes.gpu_milli", []int64{wanted.GPU.Milli}, 1)
	described.Int64s("classes.gpu_column", []int64{known.column(wanted.GPU.Resource)}, 1)
	described.Int64s("classes.constraint", []int64{int64(row)}, 1)
	described.Bools("classes.allowed", allowed, len(c.classes.constraints)-constraints, len(c.nodes))
}

func (c *cluster) describeSites(described *core.Description, known *numbering) {
	racks, servers := make([]int64, len(c.nodes)), make([]int64, len(c.nodes))
	for n := range c.nodes {
		racks[n], servers[n] = site(known.racks, c.nodes[n].rack), site(known.servers, c.nodes[n].server)
	}
	described.Int64s("observer.rack", racks, len(racks))
	described.Int64s("observer.racks", []int64{int64(len(known.racks))})
	described.Int64s("observer.server", servers, len(servers))
}

// describeTerms writes what classes require of other pods: nothing, since kube-scheduler looks at that.
func describeTerms(described *core.Description, nodes int) {
	described.Int32s("terms.matched", nil, 0, nodes)
	described.Int32s("terms.held", nil, 0, nodes)
	described.Bools("terms.included", nil, 0, nodes)
	described.Int32s("terms.domain", nil, 0, nodes)
	described.Int64s("terms.domains", nil, 0)
	described.Int64s("terms.owned_terms", nil, 0, 3)
	described.Int32s("terms.owned", nil, 0, nodes)
	described.Int64s("terms.rules", nil, 0, 8)
	described.Int64s("terms.rule_start", []int64{0, 0}, 2)
}
