package gpushare

import (
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/gpus"
	"steersman.dev/plugin/scoring"
)

// nodes keeps what was counted of nodes for as long as they do not change.
type nodes struct{ kept sync.Map } // of *counted by the node's name

type counted struct {
	revision scoring.Revision
	gpus.Node
}

func (n *nodes) look(ledger *gpus.Ledger, info fwk.NodeInfo) *gpus.Node {
	name, revision := info.Node().Name, scoring.RevisionOf(info)
	if found, ok := n.kept.Load(name); ok && found.(*counted).revision == revision {
		return &found.(*counted).Node
	}
	made := &counted{revision, ledger.Look(info)}
	n.kept.Store(name, made)
	return &made.Node
}

func (n *nodes) forget(name string) { n.kept.Delete(name) }
