//go:build !before1.35

package compat

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

type (
	APICacher           = fwk.APICacher
	BindPlugin          = fwk.BindPlugin
	EnqueueExtensions   = fwk.EnqueueExtensions
	FilterPlugin        = fwk.FilterPlugin
	Handle              = fwk.Handle
	NodeInfoLister      = fwk.NodeInfoLister
	NodeScore           = fwk.NodeScore
	NodeScoreList       = fwk.NodeScoreList
	NodeToStatusReader  = fwk.NodeToStatusReader
	Plugin              = fwk.Plugin
	PostBindPlugin      = fwk.PostBindPlugin
	PostFilterPlugin    = fwk.PostFilterPlugin
	PostFilterResult    = fwk.PostFilterResult
	PreEnqueuePlugin    = fwk.PreEnqueuePlugin
	PreFilterExtensions = fwk.PreFilterExtensions
	PreFilterPlugin     = fwk.PreFilterPlugin
	PreFilterResult     = fwk.PreFilterResult
	PreScorePlugin      = fwk.PreScorePlugin
	QueueSortPlugin     = fwk.QueueSortPlugin
	ReservePlugin       = fwk.ReservePlugin
	ScoreExtensions     = fwk.ScoreExtensions
	ScorePlugin         = fwk.ScorePlugin
	SharedLister        = fwk.SharedLister
	SignFragment        = fwk.SignFragment
	SignPlugin          = fwk.SignPlugin
)

// ProfileName returns the name of the profile that a handle belongs to.
func ProfileName(handle Handle) string { return handle.ProfileName() }

// IsTainted reports whether one of the taints that the filter selects is not tolerated.
func IsTainted(taints []v1.Taint, tolerations []v1.Toleration, filter func(*v1.Taint) bool) bool {
	_, found := corev1.FindMatchingUntoleratedTaint(klog.Background(), taints, tolerations, filter, false)
	return found
}
