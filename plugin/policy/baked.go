package policy

import "fmt"

// bakedReader reads what "steersman policy prepare" put into a file, and makes sure that nobody can be led astray by it.
// The first thing that is wrong stays in err, and nothing after it is read.
type bakedReader struct {
	*tensors
	err error
}

// whole are whole numbers of that shape from low to high.
func (r *bakedReader) whole(name string, low, high int64, shape ...int) []int64 {
	each, ok := r.tensor(name, false, shape)
	if !ok {
		return nil
	}
	numbers := each.ints()
	for _, number := range numbers {
		if number < low || number > high {
			r.err = r.wrong(name, "has a value outside %d to %d", low, high)
			return nil
		}
	}
	return numbers
}

// real are floating-point numbers of that shape.
func (r *bakedReader) real(name string, shape ...int) []float64 {
	each, ok := r.tensor(name, true, shape)
	if !ok {
		return nil
	}
	return each.floats()
}

func (r *bakedReader) tensor(name string, real bool, shape []int) (tensor, bool) {
	if r.err != nil {
		return tensor{}, false
	}
	each, ok := r.found[name]
	if !ok {
		r.err = r.wrong(name, "is missing; prepare the policy again")
		return tensor{}, false
	}
	if !sameShape(each.shape, shape) || each.real() != real {
		words := map[bool]string{true: "real", false: "whole"}
		right := fmt.Sprintf("%s numbers of shape %v (%d: any length)", words[real], shape, anyLength)
		r.err = r.wrong(name, "is %s of shape %v; %s are right", each.kind, each.shape, right)
		return tensor{}, false
	}
	r.read[name] = true
	return each, true
}
