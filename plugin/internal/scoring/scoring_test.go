package scoring

import (
	"math"
	"slices"
	"testing"
)

func TestRank(t *testing.T) {
	none := math.Inf(-1)
	for _, each := range []struct {
		name   string
		raw    []float64
		chosen int
		want   []int64
	}{
		{"the chosen one is alone at the top", []float64{1, 3, 3, 2}, 2, []int64{0, 99, 100, 49}},
		{"without room there is nothing", []float64{none, 5, none, 4}, 1, []int64{0, 100, 0, 0}},
		{"equals", []float64{7, 7, 7}, 0, []int64{100, 99, 99}},
		{"one", []float64{-3}, 0, []int64{100}},
		{"nowhere", []float64{none, none}, -1, []int64{0, 0}},
		{"rounded down", []float64{0, 0.999, 1}, 2, []int64{0, 98, 100}},
		{"below zero", []float64{-10, -20, -15}, 0, []int64{100, 0, 49}},
	} {
		t.Run(each.name, func(t *testing.T) {
			out := make([]int64, len(each.raw))
			if Rank(each.raw, each.chosen, out); !slices.Equal(out, each.want) {
				t.Errorf("%v, not %v", out, each.want)
			}
		})
	}
}

func TestChoosersAreThoseOfTheirProfile(t *testing.T) {
	if DeviceSelectorFor("nobody's") != nil {
		t.Error("there is a chooser that nobody offered")
	}
}
