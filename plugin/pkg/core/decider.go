package core

import (
	"encoding/binary"
	"math"
)

// Decider is a cluster and a policy that places pods on it.
type Decider struct {
	instance *Instance
	number   int64
}

// NewDecider returns a decider of what Decider::read in core/src/decide.rs reads, by name.
func NewDecider(instance *Instance, described *Description) (*Decider, error) {
	content := described.Encode()
	number, _, err := instance.call("decider_new", content, len(content))
	if err != nil {
		return nil, err
	}
	return &Decider{instance, number}, nil
}

// Replace describes the decider anew.
func (d *Decider) Replace(described *Description) error { return d.tell("decider_replace", described) }

// Follow follows changes of classes: what Decider::follow_changes in core/src/changes.rs reads, by name. After an error
// the decider is to be replaced.
func (d *Decider) Follow(changes *Description) error { return d.tell("decider_follow", changes) }

func (d *Decider) tell(function string, described *Description) error {
	content := described.Encode()
	_, _, err := d.instance.call(function, d.number, content, len(content))
	return err
}

// SetPods sets what pods leave of a node, see Decider::set_pods in core/src/changes.rs.
func (d *Decider) SetPods(node int, numbers []int64) error {
	_, _, err := d.instance.call("decider_set_pods", d.number, int64(node), numbers, len(numbers))
	return err
}

// Scores are those of nodes by their place, -Inf where a pod may not run.
type Scores []byte

// Of returns the score of a node.
func (s Scores) Of(node int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(s[8*node:]))
}

// Scores returns the scores of a class on so many nodes, all that there are. They are valid until the next call.
func (d *Decider) Scores(class, nodes int) (Scores, error) {
	_, scores, err := d.instance.call("decider_scores", d.number, int64(class), int64(0), []byte{}, 0, output(8*nodes), nodes)
	return scores, err
}

// Devices returns the devices that a class would get on a node, on which it must fit: a bit mask.
func (d *Decider) Devices(class, node int) (uint64, error) {
	devices, _, err := d.instance.call("decider_devices", d.number, int64(class), int64(node))
	return uint64(devices), err
}

// Observe says for the next scores of a network on which of so many nodes how many pods of the pod's owner run, both by
// the same place.
func (d *Decider) Observe(nodes int, ownerNodes, ownerPods []int64) error {
	eligible := make([]byte, nodes)
	for n := range eligible {
		eligible[n] = 1
	}
	_, _, err := d.instance.call("decider_observe", d.number, int64(0), eligible, nodes, ownerNodes, ownerPods, len(ownerNodes))
	return err
}
