//go:build before1.35

package compat

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
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
	PreEnqueuePlugin    = framework.PreEnqueuePlugin
	PreFilterExtensions = framework.PreFilterExtensions
	PreFilterPlugin     = framework.PreFilterPlugin
	PreFilterResult     = framework.PreFilterResult
	PreScorePlugin      = framework.PreScorePlugin
	QueueSortPlugin     = framework.QueueSortPlugin
	ReservePlugin       = framework.ReservePlugin
	ScoreExtensions     = framework.ScoreExtensions
	ScorePlugin         = framework.ScorePlugin
	SharedLister        = framework.SharedLister
)

// SignFragment is part of what the scores of a pod's nodes depend on, since 1.35.
type SignFragment struct {
	Key   string
	Value any
}

// SignPlugin lets kube-scheduler place equal pods by the scores of the first one, since 1.35; earlier ones never ask.
type SignPlugin interface {
	Plugin
	SignPod(ctx context.Context, pod *v1.Pod) ([]SignFragment, *fwk.Status)
}

// ProfileName returns the name of the profile that a handle belongs to. Handles are frameworks, which know it.
func ProfileName(handle Handle) string {
	return handle.(interface{ ProfileName() string }).ProfileName()
}

// IsTainted reports whether one of the taints that the filter selects is not tolerated.
func IsTainted(taints []v1.Taint, tolerations []v1.Toleration, filter func(*v1.Taint) bool) bool {
	_, found := corev1.FindMatchingUntoleratedTaint(taints, tolerations, filter)
	return found
}
