package native

import (
	"context"
	"math"

	"steersman.dev/plugin/internal/policy"
)

// cellsKept is how many scores are kept, of all classes together: 64 MiB.
const cellsKept = 1 << 22

// table keeps scores by class of pods and node, for a policy whose score depends on these two alone. A score holds
// until its node changes.
type table struct {
	rows   map[policy.Pod]*row
	stale  []int     // the nodes of a question whose scores hold no more
	result []float64 // their scores
}

type row struct {
	scores []float64
	times  []uint64 // by node, the time of the change that the score knows of
}

func (t *table) scores(
	ctx context.Context, loaded *policy.Policy, c *cluster, pod policy.Pod, candidates []int, out []float64,
) error {
	row := t.row(pod, len(c.state.Nodes))
	t.stale = t.stale[:0]
	for _, n := range candidates {
		if row.times[n] != c.changed[n] {
			t.stale = append(t.stale, n)
		}
	}
	if len(t.stale) > 0 {
		if len(t.result) < len(t.stale) {
			t.result = make([]float64, len(c.state.Nodes))
		}
		if err := loaded.Scores(ctx, &c.state, &pod, t.stale, t.result); err != nil {
			return err
		}
		for i, n := range t.stale {
			row.scores[n], row.times[n] = t.result[i], c.changed[n]
		}
	}
	for i, n := range candidates {
		out[i] = row.scores[n]
	}
	return nil
}

// row returns that of a class; if there are too many, another one is forgotten.
func (t *table) row(pod policy.Pod, nodes int) *row {
	if result := t.rows[pod]; result != nil {
		return result
	}
	for each := range t.rows {
		if len(t.rows) < max(1, cellsKept/max(1, nodes)) {
			break
		}
		delete(t.rows, each)
	}
	made := &row{make([]float64, nodes), make([]uint64, nodes)}
	t.rows[pod] = made
	return made
}

// best returns the position of the highest score, of equals that of the first node; -1 if there is no room.
func best(candidates []int, scores []float64) int {
	chosen := -1
	for i, score := range scores {
		switch {
		case math.IsInf(score, -1):
		case chosen < 0 || score > scores[chosen] || score == scores[chosen] && candidates[i] < candidates[chosen]:
			chosen = i
		}
	}
	return chosen
}
