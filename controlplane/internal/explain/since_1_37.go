//go:build !before1.37

package explain

import (
	"context"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

func (r *dryRuns) SelectVictimsOnNode(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo, possible []*preemption.DomainVictim, budgets []*policy.PodDisruptionBudget) ([]*v1.Pod, int, *fwk.Status) {
	victims, violations, status := r.Interface.SelectVictimsOnNode(ctx, state, pod, node, possible, budgets)
	r.record(node, victims, violations)
	return victims, violations, status
}
