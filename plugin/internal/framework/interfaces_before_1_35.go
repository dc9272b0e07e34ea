//go:build before1.35

package framework

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

type (
	APICacher           = framework.APICacher
	BindPlugin          = framework.BindPlugin
	EnqueueExtensions   = framework.EnqueueExtensions
	FilterPlugin        = framework.FilterPlugin
	Handle              = framework.Handle
	NodeInfoLister      = framework.NodeInfoLister
	NodeScore           = framework.NodeScore
	NodeScoreList       = framework.NodeScoreList
	NodeToStatusReader  = framework.NodeToStatusReader
	Plugin              = framework.Plugin
	PostBindPlugin      = framework.PostBindPlugin
	PostFilterPlugin    = framework.PostFilterPlugin
	PostFilterResult    = framework.PostFilterResult
	PreFilterExtensions = framework.PreFilterExtensions
	PreFilterPlugin     = framework.PreFilterPlugin
	PreFilterResult     = framework.PreFilterResult
	PreScorePlugin      = framework.PreScorePlugin
	ReservePlugin       = framework.ReservePlugin
	ScoreExtensions     = framework.ScoreExtensions
	ScorePlugin         = framework.ScorePlugin
	SharedLister        = framework.SharedLister
)

// MaxScore is the highest score of a node.
const MaxScore = framework.MaxNodeScore

// SignFragment is part of what the scores of a pod's nodes depend on, since 1.35.
type SignFragment struct {
	Key   string
	Value any
}

// SignPlugin lets kube-scheduler place equal pods by the scores of the first one, since 1.35; earlier ones never ask.
type SignPlugin interface {
	Plugin
	SignPod(ctx context.Context, pod *v1.Pod) ([]SignFragment, *Status)
}
