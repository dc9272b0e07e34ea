//go:build !before1.35

package framework

import fwk "k8s.io/kube-scheduler/framework"

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
	PreFilterExtensions = fwk.PreFilterExtensions
	PreFilterPlugin     = fwk.PreFilterPlugin
	PreFilterResult     = fwk.PreFilterResult
	PreScorePlugin      = fwk.PreScorePlugin
	ReservePlugin       = fwk.ReservePlugin
	ScoreExtensions     = fwk.ScoreExtensions
	ScorePlugin         = fwk.ScorePlugin
	SharedLister        = fwk.SharedLister
	SignFragment        = fwk.SignFragment
	SignPlugin          = fwk.SignPlugin
)
