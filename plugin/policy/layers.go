package policy

import "math"

// epsilon is what normalisation adds to a variance.
const epsilon = 1e-5

// layer is relu(norm(x W + b)) of a row of numbers, or x W + b alone where it makes a score.
type layer struct {
	weight       [][]float64 // [inputs][outputs]
	bias         []float64   // [outputs]
	scale, shift []float64   // [outputs] of layer normalisation; nil without
	score        bool        // no normalisation, and what is negative stays
}

func (l *layer) run(in, out []float64) {
	copy(out, l.bias)
	accumulate(l.weight, in, out)
	l.finish(out)
}

// finish normalises what the layer found and cuts what is negative.
func (l *layer) finish(out []float64) {
	if l.score {
		return
	}
	if l.scale != nil {
		normalise(out)
		for j := range out {
			out[j] = float64(out[j]*l.scale[j]) + l.shift[j]
		}
	}
	for j := range out {
		out[j] = max(out[j], 0)
	}
}

// accumulate adds the weighted inputs to out. Sums side by side do not wait for each other.
func accumulate(weight [][]float64, in, out []float64) {
	for i, x := range in {
		if x == 0 {
			continue
		}
		weights := weight[i][:len(out)]
		for j := range out {
			out[j] += float64(weights[j] * x)
		}
	}
}

// normalise brings a row to mean 0 and variance 1 (Ba, Kiros, Hinton, "Layer Normalization", 2016).
func normalise(row []float64) {
	mean, variance := 0.0, 0.0
	for _, x := range row {
		mean += x / float64(len(row))
	}
	for j := range row {
		row[j] -= mean
		variance += float64(row[j] * row[j] / float64(len(row)))
	}
	spread := math.Sqrt(variance + epsilon)
	for j := range row {
		row[j] /= spread
	}
}

// stack is layers one after the other. Its inputs are those of a node and then those that all nodes share.
type stack []layer

// stackRoom is what a stack has worked out, for one goroutine.
type stackRoom struct {
	shared []float64   // [outputs of the first layer] what it makes of what all nodes share
	out    [][]float64 // of each layer
}

func (s stack) room() *stackRoom {
	found := &stackRoom{}
	for _, layer := range s {
		found.out = append(found.out, make([]float64, len(layer.bias)))
	}
	if len(s) > 0 {
		found.shared = make([]float64, len(s[0].bias))
	}
	return found
}

// share takes in what all nodes share: the last inputs of the first layer.
func (s stack) share(shared []float64, room *stackRoom) {
	copy(room.shared, s[0].bias)
	accumulate(s[0].weight[len(s[0].weight)-len(shared):], shared, room.shared)
}

// run is what the layers make of a node, beside what is shared. It is valid until the next run.
func (s stack) run(node []float64, room *stackRoom) []float64 {
	copy(room.out[0], room.shared)
	accumulate(s[0].weight[:len(node)], node, room.out[0])
	s[0].finish(room.out[0])
	return s.follow(room)
}

// follow runs the layers after the first, whose output is there.
func (s stack) follow(room *stackRoom) []float64 {
	for l := 1; l < len(s); l++ {
		s[l].run(room.out[l-1], room.out[l])
	}
	return room.out[len(s)-1]
}
