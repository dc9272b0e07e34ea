package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"steersman.dev/plugin/internal/safetensors"
)

const (
	// maxWeight is the largest weight that is of use: beyond it scores leave the range of numbers, and none is the best.
	maxWeight = 1e12

	anyLength = -1 // of an axis
)

// reader reads the tensors of a file, and notes which were read. The first error stays in err, and nothing is read
// after it.
type reader struct {
	file    string
	tensors map[string]safetensors.Tensor
	names   []string // sorted
	read    map[string]bool
	err     error
}

func newReader(file string, tensors map[string]safetensors.Tensor) *reader {
	return &reader{file, tensors, slices.Sorted(maps.Keys(tensors)), map[string]bool{}, nil}
}

// refuse sets the error, unless there is one.
func (r *reader) refuse(where, field, format string, args ...any) {
	if r.err == nil {
		r.err = &FileError{r.file, where, field, fmt.Sprintf(format, args...)}
	}
}

func (r *reader) refuseCard(field, format string, args ...any) {
	r.refuse("card", field, format, args...)
}

func (r *reader) refuseTensor(name, format string, args ...any) {
	r.refuse("tensor", name, format, args...)
}

// checkNumbers checks that all weights are floating-point numbers, that all of these are finite, and that no weight
// is absurd. It allocates nothing for numbers.
func (r *reader) checkNumbers() {
	for _, name := range r.names {
		each, embedded := r.tensors[name], isEmbedded(name)
		if !each.IsFloat() {
			if !embedded {
				r.refuseTensor(name, "is %s; expected F32 or F64 for weights", each.Kind)
			}
			continue
		}
		for i := range each.Size() {
			switch number := each.Float(i); {
			case math.IsNaN(number) || math.IsInf(number, 0):
				r.refuseTensor(name, "holds a weight that is not a finite number")
			case !embedded && math.Abs(number) > maxWeight:
				r.refuseTensor(name, "holds a weight beyond %g, which is of no use", float64(maxWeight))
			}
		}
	}
}

// checkAllRead checks that no tensor is left over of those that belong to the weights, or of the others.
func (r *reader) checkAllRead(weights bool, problem string) {
	for _, name := range r.names {
		if isEmbedded(name) != weights && !r.read[name] {
			r.refuseTensor(name, "%s", problem)
		}
	}
}

// isEmbedded reports whether a tensor belongs to what "steersman fit policy" put into a file: the profile and what
// follows from it.
func isEmbedded(name string) bool {
	return strings.HasPrefix(name, "mix.") || strings.HasPrefix(name, "outlook.")
}

func (r *reader) has(name string) bool {
	_, ok := r.tensors[name]
	return ok
}

// ints returns integers of that shape from low to high; nil after an error.
func (r *reader) ints(name string, low, high int64, shape ...int) []int64 {
	tensor, ok := r.tensor(name, false, shape)
	if !ok {
		return nil
	}
	numbers := tensor.Ints()
	if slices.ContainsFunc(numbers, func(number int64) bool { return number < low || number > high }) {
		r.refuseTensor(name, "has a value outside %d to %d", low, high)
		return nil
	}
	return numbers
}

// floats returns floating-point numbers of that shape; nil after an error.
func (r *reader) floats(name string, shape ...int) []float64 {
	tensor, ok := r.tensor(name, true, shape)
	if !ok {
		return nil
	}
	return tensor.Floats()
}

// tensor returns a tensor of that shape, in which anyLength stands for any.
func (r *reader) tensor(name string, float bool, shape []int) (safetensors.Tensor, bool) {
	each, ok := r.tensors[name]
	switch {
	case !ok && isEmbedded(name):
		r.refuseTensor(name, "is missing; prepare the policy again")
	case !ok:
		r.refuseTensor(name, "is missing; expected %v", shape)
	case each.IsFloat() != float ||
		!slices.EqualFunc(each.Shape, shape, func(length, right int) bool { return right == anyLength || length == right }):
		numbers := map[bool]string{true: "real", false: "whole"}[float]
		right := strings.ReplaceAll(fmt.Sprint(shape), fmt.Sprint(anyLength), "any")
		r.refuseTensor(name, "is %s of shape %v; expected %s numbers of shape %s", each.Kind, each.Shape, numbers, right)
	}
	r.read[name] = true
	return each, r.err == nil
}
