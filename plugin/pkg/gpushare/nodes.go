package gpushare

import (
	"sync"

	fwk "steersman.dev/plugin/internal/framework"
	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/scoring"
)

// nodes keeps what was counted of nodes for as long as they do not change.
type nodes struct{ kept sync.Map } // of *counted by the node's name

type counted struct {
	revision scoring.Revision
	gpu.Node
}

func (n *nodes) nodeState(ledger *gpu.Ledger, info fwk.NodeInfo) *gpu.Node {
	name, revision := info.Node().Name, scoring.RevisionOf(info)
	if result, ok := n.kept.Load(name); ok && result.(*counted).revision == revision {
		return &result.(*counted).Node
	}
	made := &counted{revision, ledger.NodeState(info)}
	n.kept.Store(name, made)
	return &made.Node
}

func (n *nodes) forget(name string) { n.kept.Delete(name) }
