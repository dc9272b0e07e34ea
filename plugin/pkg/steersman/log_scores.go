package steersman

import (
	"cmp"
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// maxLoggedNodes limits the scores in a log line, which has the best nodes first.
const maxLoggedNodes = 10

// nodeScore is a node in a log line.
type nodeScore struct {
	Node  string `json:"node"`
	Score int64  `json:"score"`
}

// logScores logs what the source gave a pod's nodes, where args.logScores asks for it: the best ones, of equals in the
// order of the nodes, or why there are no scores.
func (p *Plugin) logScores(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, result *scoreResult) {
	if !p.args.LogScores {
		return
	}
	logger := klog.FromContext(ctx).WithValues("plugin", Name, "pod", klog.KObj(pod), "nodes", len(nodes))
	if result.found == nil {
		logger.Info("Pod has no scores", "reason", result.reason)
		return
	}
	logger.Info("Pod scored", "wanted", result.wanted, "mode", p.args.Mode, "scores", bestScores(nodes, result.found))
}

// logBinding logs where a pod went, and the score that the source gave this node.
func (p *Plugin) logBinding(ctx context.Context, pod *v1.Pod, node string, result *scoreResult) {
	if !p.args.LogScores || result.found == nil {
		return
	}
	i := slices.IndexFunc(result.nodes, func(each fwk.NodeInfo) bool { return each.Node().Name == node })
	if i >= 0 {
		klog.FromContext(ctx).Info("Pod bound", "plugin", Name, "pod", klog.KObj(pod), "node", node,
			"score", result.found[i], "wanted", result.wanted)
	}
}

// bestScores returns the nodes with the highest scores, at most maxLoggedNodes.
func bestScores(nodes []fwk.NodeInfo, scores []int64) []nodeScore {
	result := make([]nodeScore, len(nodes))
	for i, node := range nodes {
		result[i] = nodeScore{node.Node().Name, scores[i]}
	}
	slices.SortStableFunc(result, func(a, b nodeScore) int { return cmp.Compare(b.Score, a.Score) })
	return result[:min(len(result), maxLoggedNodes)]
}
