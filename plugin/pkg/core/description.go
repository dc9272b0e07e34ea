package core

import (
	"encoding/binary"
	"math"
	"strconv"
)

// Description is arrays by name, of which the core makes an object: the content of a safetensors file. Names need no
// escapes. The zero value is empty.
type Description struct{ header, data []byte }

// Reset forgets all arrays, and keeps the room.
func (d *Description) Reset() { d.header, d.data = d.header[:0], d.data[:0] }

// Bytes adds an array of bytes.
func (d *Description) Bytes(name string, values []byte) {
	d.data = append(d.data, values...)
	d.add(name, "U8", len(values), []int{len(values)})
}

// Bools adds an array of flags.
func (d *Description) Bools(name string, values []bool, shape ...int) {
	for _, value := range values {
		number := byte(0)
		if value {
			number = 1
		}
		d.data = append(d.data, number)
	}
	d.add(name, "BOOL", len(values), shape)
}

// Int64s adds an array of numbers; without a shape, the only one of them.
func (d *Description) Int64s(name string, values []int64, shape ...int) {
	for _, value := range values {
		d.data = binary.LittleEndian.AppendUint64(d.data, uint64(value))
	}
	d.add(name, "I64", 8*len(values), shape)
}

// Int32s adds an array of numbers.
func (d *Description) Int32s(name string, values []int32, shape ...int) {
	for _, value := range values {
		d.data = binary.LittleEndian.AppendUint32(d.data, uint32(value))
	}
	d.add(name, "I32", 4*len(values), shape)
}

// Float64s adds an array of numbers.
func (d *Description) Float64s(name string, values []float64, shape ...int) {
	for _, value := range values {
		d.data = binary.LittleEndian.AppendUint64(d.data, math.Float64bits(value))
	}
	d.add(name, "F64", 8*len(values), shape)
}

func (d *Description) add(name, kind string, bytes int, shape []int) {
	separator := byte(',')
	if len(d.header) == 0 {
		separator = '{'
	}
	d.header = append(append(append(d.header, separator, '"'), name...), `":{"dtype":"`...)
	d.header = d.list(append(append(d.header, kind...), `","shape":`...), shape...)
	d.header = d.list(append(d.header, `,"data_offsets":`...), len(d.data)-bytes, len(d.data))
	d.header = append(d.header, '}')
}

func (*Description) list(text []byte, numbers ...int) []byte {
	text = append(text, '[')
	for i, number := range numbers {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(number), 10)
	}
	return append(text, ']')
}

// Encode returns the arrays as the bytes of a safetensors file.
func (d *Description) Encode() []byte {
	result := make([]byte, 0, 9+len(d.header)+len(d.data))
	result = binary.LittleEndian.AppendUint64(result, uint64(len(d.header)+1))
	return append(append(append(result, d.header...), '}'), d.data...)
}
