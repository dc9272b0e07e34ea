package policy

import (
	"fmt"
	"math"
	"sort"
	"strings"
)

// largest is the largest weight that is of use: beyond it scores leave the range of numbers, and none is the best.
const largest = 1e12

// tensors are the arrays of a file, and which of them were asked for.
type tensors struct {
	file  string
	found map[string]tensor
	read  map[string]bool
}

func (t *tensors) wrong(name, format string, args ...any) error {
	return &FileError{t.file, "tensor", name, fmt.Sprintf(format, args...)}
}

// names are the names of all tensors in order.
func (t *tensors) names() []string {
	names := make([]string, 0, len(t.found))
	for name := range t.found {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// checkNumbers makes sure that all weights are floating-point numbers, that all of these are finite, and that no weight
// is absurd. It allocates nothing for numbers.
func (t *tensors) checkNumbers() error {
	names := t.names()
	for _, name := range names {
		if each := t.found[name]; !baked(name) && !each.real() {
			return t.wrong(name, "is %s; F32 or F64 is right for weights", each.kind)
		}
	}
	for _, name := range names {
		each := t.found[name]
		for i := range each.size() {
			if each.real() && (math.IsNaN(each.float(i)) || math.IsInf(each.float(i), 0)) {
				return t.wrong(name, "holds a weight that is not a finite number")
			}
		}
	}
	for _, name := range names {
		each := t.found[name]
		for i := range each.size() {
			if !baked(name) && math.Abs(each.float(i)) > largest {
				return t.wrong(name, "holds a weight beyond %g, which is of no use", float64(largest))
			}
		}
	}
	return nil
}

// checkAllRead makes sure that no tensor is left over of those that belong to the weights, or of the others.
func (t *tensors) checkAllRead(weights bool, problem string) error {
	for _, name := range t.names() {
		if baked(name) != weights && !t.read[name] {
			return t.wrong(name, "%s", problem)
		}
	}
	return nil
}

// weights are the numbers of a tensor of exactly that shape.
func (t *tensors) weights(name string, shape ...int) ([]float64, error) {
	each, ok := t.found[name]
	if !ok {
		return nil, t.wrong(name, "is missing; %v is right", shape)
	}
	if !sameShape(each.shape, shape) {
		return nil, t.wrong(name, "is of shape %v; %v is right", each.shape, shape)
	}
	t.read[name] = true
	return each.floats(), nil
}

// baked tells whether a tensor belongs to the mix and what follows from it.
func baked(name string) bool {
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
