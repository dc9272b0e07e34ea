package policy

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"
)

// maxWeight is the largest weight that is of use: beyond it scores leave the range of numbers, and none is the best.
const maxWeight = 1e12

// tensors are the arrays of a file, and which of them were requested.
type tensors struct {
	file   string
	byName map[string]tensor
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
		if each := t.byName[name]; !isEmbedded(name) && !each.isFloat() {
			return t.wrong(name, "is %s; expected F32 or F64 for weights", each.kind)
		}
	}
	for _, name := range names {
		each := t.byName[name]
		for i := range each.size() {
			if each.isFloat() && (math.IsNaN(each.float(i)) || math.IsInf(each.float(i), 0)) {
				return t.wrong(name, "holds a weight that is not a finite number")
			}
		}
	}
	for _, name := range names {
		each := t.byName[name]
		for i := range each.size() {
			if !isEmbedded(name) && math.Abs(each.float(i)) > maxWeight {
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
	if !sameShape(each.shape, shape) {
		return nil, t.wrong(name, "is of shape %v; expected %v", each.shape, shape)
	}
	t.read[name] = true
	return each.floats(), nil
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
	numbers := each.ints()
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
	return each.floats()
}

func (r *profileReader) tensor(name string, float bool, shape []int) (tensor, bool) {
	if r.err != nil {
		return tensor{}, false
	}
	each, ok := r.byName[name]
	if !ok {
		r.err = r.wrong(name, "is missing; prepare the policy again")
		return tensor{}, false
	}
	if !sameShape(each.shape, shape) || each.isFloat() != float {
		words := map[bool]string{true: "real", false: "whole"}
		right := fmt.Sprintf("%s numbers of shape %v (%d: any length)", words[float], shape, anyLength)
		r.err = r.wrong(name, "is %s of shape %v; expected %s", each.kind, each.shape, right)
		return tensor{}, false
	}
	r.read[name] = true
	return each, true
}

const (
	maxHeaderBytes = 100_000_000 // as in the safetensors library
	metadataKey    = "__metadata__"
)

// widths are the bytes of a number by type, as far as policies use them.
var widths = map[string]int{
	"F32": 4, "F64": 8,
	"I8": 1, "I16": 2, "I32": 4, "I64": 8,
	"U8": 1, "U16": 2, "U32": 4, "U64": 8,
}

// tensor is an array of a file as it lies there: numbers in little endian, the last axis first.
type tensor struct {
	kind  string // F64, I64 and so on
	shape []int
	data  []byte
}

// isFloat reports whether the numbers are floating-point numbers; else they are integers.
func (t tensor) isFloat() bool { return t.kind == "F32" || t.kind == "F64" }

func (t tensor) size() int { return len(t.data) / widths[t.kind] }

// floats returns the numbers of a tensor of floating-point ones as float64.
func (t tensor) floats() []float64 {
	result := make([]float64, t.size())
	for i := range result {
		result[i] = t.float(i)
	}
	return result
}

// float returns one number of a tensor of floating-point ones.
func (t tensor) float(i int) float64 {
	if t.kind == "F32" {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(t.data[4*i:])))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(t.data[8*i:]))
}

// ints returns the integers; one beyond the range of int64 is negative.
func (t tensor) ints() []int64 {
	result := make([]int64, t.size())
	for i := range result {
		switch t.kind {
		case "I8":
			result[i] = int64(int8(t.data[i]))
		case "U8":
			result[i] = int64(t.data[i])
		case "I16":
			result[i] = int64(int16(binary.LittleEndian.Uint16(t.data[2*i:])))
		case "U16":
			result[i] = int64(binary.LittleEndian.Uint16(t.data[2*i:]))
		case "I32":
			result[i] = int64(int32(binary.LittleEndian.Uint32(t.data[4*i:])))
		case "U32":
			result[i] = int64(binary.LittleEndian.Uint32(t.data[4*i:]))
		default:
			result[i] = int64(binary.LittleEndian.Uint64(t.data[8*i:]))
		}
	}
	return result
}

// entry is what the header says of a tensor.
type entry struct {
	Kind    string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets []int  `json:"data_offsets"`
}

// parseTensors takes a safetensors file apart: its tensors by name, and its metadata. Tensors share memory with content.
//
// The format: https://huggingface.co/docs/safetensors, "Format"; with the checks of its own library.
func parseTensors(content []byte) (map[string]tensor, map[string]string, error) {
	if len(content) < 8 {
		return nil, nil, errors.New("it ends within the length of its header")
	}
	length := binary.LittleEndian.Uint64(content)
	if length > maxHeaderBytes || length > uint64(len(content)-8) {
		return nil, nil, errors.New("its header would be longer than the file")
	}
	header, data := content[8:8+length], content[8+length:]
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(header, &raw); err != nil || raw == nil {
		return nil, nil, errors.New("its header is no JSON object")
	}
	metadata := map[string]string{}
	if given, ok := raw[metadataKey]; ok {
		if err := json.Unmarshal(given, &metadata); err != nil {
			return nil, nil, errors.New("its metadata are no texts by name")
		}
		delete(raw, metadataKey)
	}
	entries := make(map[string]entry, len(raw))
	for name, given := range raw {
		var result entry
		if err := json.Unmarshal(given, &result); err != nil || len(result.Offsets) != 2 {
			return nil, nil, fmt.Errorf("the header's entry of %s is none of a tensor", oneLine(name))
		}
		entries[name] = result
	}
	tensors, err := cut(entries, data)
	return tensors, metadata, err
}

// cut finds the tensors in the data, which they must cover without holes.
func cut(entries map[string]entry, data []byte) (map[string]tensor, error) {
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := entries[names[i]].Offsets, entries[names[j]].Offsets
		if a[0] != b[0] {
			return a[0] < b[0]
		}
		return a[1] < b[1] || a[1] == b[1] && names[i] < names[j]
	})
	tensors, reached := make(map[string]tensor, len(entries)), 0
	for _, name := range names {
		each := entries[name]
		begin, end := each.Offsets[0], each.Offsets[1]
		if begin != reached || end < begin || end > len(data) {
			return nil, fmt.Errorf("the tensor %s is not where the one before it ends, or beyond the end", oneLine(name))
		}
		width, known := widths[each.Kind]
		if !known {
			return nil, fmt.Errorf("the tensor %s is of type %q; expected F32, F64 or whole numbers", oneLine(name), each.Kind)
		}
		if bytes, ok := volume(width, each.Shape); !ok || bytes != end-begin {
			return nil, fmt.Errorf("the tensor %s has other bytes than its shape %v needs", oneLine(name), each.Shape)
		}
		tensors[name] = tensor{each.Kind, each.Shape, data[begin:end]}
		reached = end
	}
	if reached != len(data) {
		return nil, errors.New("it goes on after its last tensor")
	}
	return tensors, nil
}

// volume returns the bytes of an array; false if that is beyond all files.
func volume(width int, shape []int) (int, bool) {
	total := width
	for _, length := range shape {
		if length < 0 || length > 0 && total > math.MaxInt/length {
			return 0, false
		}
		total *= length
	}
	return total, true
}
