// Package safetensors reads files of arrays. Nothing in such a file is executed.
//
// The format is described at https://huggingface.co/docs/safetensors, "Format"; the checks are those of its own
// library.
package safetensors

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	maxHeaderBytes = 100_000_000 // as in the safetensors library
	metadataKey    = "__metadata__"
)

// widths are the bytes of a number by type, as far as files of steersman have them.
var widths = map[string]int{
	"F32": 4, "F64": 8,
	"I8": 1, "I16": 2, "I32": 4, "I64": 8,
	"U8": 1, "U16": 2, "U32": 4, "U64": 8,
}

// Tensor is an array of a file as it lies there: numbers in little endian, the last axis first.
type Tensor struct {
	Kind  string // F64, I64 and so on
	Shape []int
	Data  []byte
}

// IsFloat reports whether the numbers are floating-point numbers; else they are integers.
func (t Tensor) IsFloat() bool { return t.Kind == "F32" || t.Kind == "F64" }

// Size returns how many numbers there are.
func (t Tensor) Size() int { return len(t.Data) / widths[t.Kind] }

// Floats returns the numbers of a tensor of floating-point ones as float64.
func (t Tensor) Floats() []float64 {
	result := make([]float64, t.Size())
	for i := range result {
		result[i] = t.Float(i)
	}
	return result
}

// Float returns one number of a tensor of floating-point ones.
func (t Tensor) Float(i int) float64 {
	if t.Kind == "F32" {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:])))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:]))
}

// Ints returns the integers; one beyond the range of int64 is negative.
func (t Tensor) Ints() []int64 {
	result, width := make([]int64, t.Size()), widths[t.Kind]
	for i := range result {
		var number [8]byte
		copy(number[8-width:], t.Data[i*width:(i+1)*width])
		// In the highest bytes, from where it is shifted with its sign, or without.
		if bits := binary.LittleEndian.Uint64(number[:]); t.Kind[0] == 'I' {
			result[i] = int64(bits) >> (64 - 8*width)
		} else {
			result[i] = int64(bits >> (64 - 8*width))
		}
	}
	return result
}

type entry struct {
	Kind    string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets []int  `json:"data_offsets"`
}

// Parse takes a safetensors file apart: its tensors by name, and its metadata. Tensors share memory with content.
func Parse(content []byte) (map[string]Tensor, map[string]string, error) {
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
			return nil, nil, fmt.Errorf("the header's entry of %s is none of a tensor", OneLine(name))
		}
		entries[name] = result
	}
	tensors, err := cut(entries, data)
	return tensors, metadata, err
}

// cut finds the tensors in the data, which they must cover without holes.
func cut(entries map[string]entry, data []byte) (map[string]Tensor, error) {
	names := slices.SortedFunc(maps.Keys(entries), func(a, b string) int {
		return cmp.Or(slices.Compare(entries[a].Offsets, entries[b].Offsets), cmp.Compare(a, b))
	})
	tensors, reached := make(map[string]Tensor, len(entries)), 0
	for _, name := range names {
		each := entries[name]
		begin, end := each.Offsets[0], each.Offsets[1]
		if begin != reached || end < begin || end > len(data) {
			return nil, fmt.Errorf("the tensor %s is not where the one before it ends, or beyond the end", OneLine(name))
		}
		width, known := widths[each.Kind]
		if !known {
			return nil, fmt.Errorf("the tensor %s is of type %q; expected F32, F64 or whole numbers", OneLine(name), each.Kind)
		}
		if !holds(width, each.Shape, end-begin) {
			return nil, fmt.Errorf("the tensor %s has other bytes than its shape %v needs", OneLine(name), each.Shape)
		}
		tensors[name] = Tensor{each.Kind, each.Shape, data[begin:end]}
		reached = end
	}
	if reached != len(data) {
		return nil, errors.New("it goes on after its last tensor")
	}
	return tensors, nil
}

// holds reports whether an array of the shape has so many bytes.
func holds(width int, shape []int, bytes int) bool {
	total := width
	for _, length := range shape {
		if length < 0 || length > 0 && total > math.MaxInt/length {
			return false
		}
		total *= length
	}
	return total == bytes
}

// OneLine returns a text, quoted if it would not print as a part of one line.
func OneLine(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return text
	}
	return strconv.Quote(text)
}
