package safetensors

import (
	"slices"
	"testing"
)

func TestIntsOfEveryWidth(t *testing.T) {
	minusTwo := []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for kind, want := range map[string]int64{
		"I8": -2, "I16": -2, "I32": -2, "I64": -2, "U8": 1<<8 - 2, "U16": 1<<16 - 2, "U32": 1<<32 - 2, "U64": -2,
	} {
		width := widths[kind]
		data := append(slices.Clone(minusTwo[:width]), make([]byte, width)...)
		data[width] = 3
		if numbers := (Tensor{kind, []int{2}, data}).Ints(); !slices.Equal(numbers, []int64{want, 3}) {
			t.Errorf("%s: %v, not %d and 3", kind, numbers, want)
		}
	}
}
