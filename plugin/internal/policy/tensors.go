package policy

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"steersman.dev/plugin/internal/safetensors"
)

// maxWeight is the largest weight that is of use: beyond it scores leave the range of numbers, and none is the best.
const maxWeight = 1e12

// tensors are the arrays of a file, and which of them were requested.
type tensors struct {
	file   string
	byName map[string]safetensors.Tensor
	read   map[string]bool
}

func (t *tensors) wrong(name, format string, args ...any) error {
	return &FileError{t.file, "tensor", name, fmt.Sprintf(format, args...)}
}

// names returns the names of all tensors in order.
func (t *tensors) names() []string {
	names := make([]string, 0, len(t.byName))
	for name := range t.byName {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// checkNumbers checks that all weights are floating-point numbers, that all of these are finite, and that no weight
// is absurd. It allocates nothing for numbers.
func (t *tensors) checkNumbers() error {
	names := t.names()
	for _, name := range names {
		if each := t.byName[name]; !isEmbedded(name) && !each.IsFloat() {
			return t.wrong(name, "is %s; expected F32 or F64 for weights", each.Kind)
		}
	}
	for _, name := range names {
		each := t.byName[name]
		for i := range each.Size() {
			if each.IsFloat() && (math.IsNaN(each.Float(i)) || math.IsInf(each.Float(i), 0)) {
				return t.wrong(name, "holds a weight that is not a finite number")
			}
		}
	}
	for _, name := range names {
		each := t.byName[name]
		for i := range each.Size() {
			if !isEmbedded(name) && math.Abs(each.Float(i)) > maxWeight {
				return t.wrong(name, "holds a weight beyond %g, which is of no use", float64(maxWeight))
			}
		}
	}
	return nil
}

// checkAllRead checks that no tensor is left over of those that belong to the weights, or of the others.
func (t *tensors) checkAllRead(weights bool, problem string) error {
	for _, name := range t.names() {
		if isEmbedded(name) != weights && !t.read[name] {
			return t.wrong(name, "%s", problem)
		}
	}
	return nil
}

// weights returns the numbers of a tensor of exactly that shape.
func (t *tensors) weights(name string, shape ...int) ([]float64, error) {
	each, ok := t.byName[name]
	if !ok {
		return nil, t.wrong(name, "is missing; expected %v", shape)
	}
	if !sameShape(each.Shape, shape) {
		return nil, t.wrong(name, "is of shape %v; expected %v", each.Shape, shape)
	}
	t.read[name] = true
	return each.Floats(), nil
}

// isEmbedded reports whether a tensor belongs to the profile and what follows from it.
func isEmbedded(name string) bool {
	return strings.HasPrefix(name, "mix.") || strings.HasPrefix(name, "outlook.")
}

// sameShape compares a shape with the right one, in which anyLength stands for any.
func sameShape(shape, right []int) bool {
	if len(shape) != len(right) {
		return false
	}
	for i, length := range right {
		if length != anyLength && length != shape[i] {
			return false
		}
	}
	return true
}

const anyLength = -1

// profileReader reads what "steersman policy prepare" put into a file, and validates it.
// The first thing that is wrong stays in err, and nothing after it is read.
type profileReader struct {
	*tensors
	err error
}

// ints returns integers of that shape from low to high.
func (r *profileReader) ints(name string, low, high int64, shape ...int) []int64 {
	each, ok := r.tensor(name, false, shape)
	if !ok {
		return nil
	}
	numbers := each.Ints()
	for _, number := range numbers {
		if number < low || number > high {
			r.err = r.wrong(name, "has a value outside %d to %d", low, high)
			return nil
		}
	}
	return numbers
}

// floats returns floating-point numbers of that shape.
func (r *profileReader) floats(name string, shape ...int) []float64 {
	each, ok := r.tensor(name, true, shape)
	if !ok {
		return nil
	}
	return each.Floats()
}

func (r *profileReader) tensor(name string, float bool, shape []int) (safetensors.Tensor, bool) {
	if r.err != nil {
		return safetensors.Tensor{}, false
	}
	each, ok := r.byName[name]
	if !ok {
		r.err = r.wrong(name, "is missing; prepare the policy again")
		return safetensors.Tensor{}, false
	}
	if !sameShape(each.Shape, shape) || each.IsFloat() != float {
		words := map[bool]string{true: "real", false: "whole"}
		right := fmt.Sprintf("%s numbers of shape %v (%d: any length)", words[float], shape, anyLength)
		r.err = r.wrong(name, "is %s of shape %v; expected %s", each.Kind, each.Shape, right)
		return safetensors.Tensor{}, false
	}
	r.read[name] = true
	return each, true
}
