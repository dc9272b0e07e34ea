//go:build !before1.36

package framework

import fwk "k8s.io/kube-scheduler/framework"

// MaxScore is the highest score of a node.
const MaxScore = fwk.MaxScore
