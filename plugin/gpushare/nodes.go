package gpushare

import (
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/gpus"
)

// nodes keeps what was counted of nodes for as long as they do not change: by their generation, which no two states of
// any nodes share.
type nodes struct{ kept sync.Map } // of *counted by the node's name

type counted struct {
	generation int64
	gpus.Node
}

func (n *nodes) look(ledger *gpus.Ledger, info fwk.NodeInfo) *gpus.Node {
	name, generation := info.Node().Name, info.GetGeneration()
	if found, ok := n.kept.Load(name); ok && found.(*counted).generation == generation {
		return &found.(*counted).Node
	}
	made := &counted{generation, ledger.Look(info)}
	n.kept.Store(name, made)
	return &made.Node
}

func (n *nodes) forget(name string) { n.kept.Delete(name) }
