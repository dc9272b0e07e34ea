package core

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

const (
	errorBytes = 4096    // longest text of an error
	keptBytes  = 1 << 20 // size up to which the buffer of a call's arrays stays for the next call
	bug        = "this is a bug: the core panicked"
)

var (
	// ErrLost is the error of calls of an instance that stopped in an earlier one.
	ErrLost = errors.New("the core stopped in an earlier call, and what it held is lost")
	errFull = errors.New("the core has no more memory: it holds at most 1 GiB")
)

// Instance is a core with memory of its own. One goroutine may use it at a time.
type Instance struct {
	module    api.Module
	functions map[string]api.Function
	stack     [12]uint64 // arguments of a call, then what it returns
	text      uint32     // where errors are written
	buffer    uint32
	size      uint32 // of the buffer
	lost      bool
}

// New returns an instance that holds nothing.
func New() (*Instance, error) {
	program, err := compiled()
	if err != nil {
		return nil, err
	}
	module, err := program.runtime.InstantiateModule(context.Background(), program.module, wazero.NewModuleConfig().WithName(""))
	if err != nil {
		return nil, fmt.Errorf("the core cannot start: %w", err)
	}
	result := &Instance{module: module, functions: map[string]api.Function{}}
	result.functions["error"] = module.ExportedFunction("steersman_error")
	text, err := result.ask("allocate", errorBytes)
	if err != nil {
		return nil, err
	}
	result.text = uint32(text)
	return result, nil
}

// Close gives the memory back; nil has none.
func (i *Instance) Close() {
	if i == nil {
		return
	}
	i.lost = true
	_ = i.module.Close(context.Background())
}

// IsLost reports whether the instance stopped in an earlier call, so that all further calls fail.
func (i *Instance) IsLost() bool { return i.lost }

// output is an array of so many bytes that a call writes.
type output int

// call calls a function with numbers (int is a size), arrays, and outputs after these. It returns what the
// function does, and what it wrote, one output behind the other, which is valid until the next call.
func (i *Instance) call(name string, arguments ...any) (int64, []byte, error) {
	if i.lost {
		return 0, nil, ErrLost
	}
	size := 0
	for _, each := range arguments {
		size += bytesOf(each)
	}
	at, err := i.reserve(size)
	if err != nil {
		return 0, nil, err
	}
	memory, written := i.module.Memory(), at
	for k, each := range arguments {
		switch each := each.(type) {
		case int64:
			i.stack[k] = uint64(each)
			continue
		case int:
			i.stack[k] = uint64(each)
			continue
		case float64:
			i.stack[k] = math.Float64bits(each)
			continue
		case []byte:
			memory.Write(at, each)
		case []int64:
			view, _ := memory.Read(at, uint32(8*len(each)))
			for n, number := range each {
				binary.LittleEndian.PutUint64(view[8*n:], uint64(number))
			}
		case []float64:
			view, _ := memory.Read(at, uint32(8*len(each)))
			for n, number := range each {
				binary.LittleEndian.PutUint64(view[8*n:], math.Float64bits(number))
			}
		}
		i.stack[k] = uint64(at)
		at += uint32(bytesOf(each))
		if _, isOutput := each.(output); !isOutput {
			written = at
		}
	}
	answer, err := i.invoke(name, len(arguments))
	if err != nil {
		return 0, nil, err
	}
	if answer < 0 {
		return 0, nil, errors.New(i.errorText())
	}
	result, _ := i.module.Memory().Read(written, at-written)
	return answer, result, nil
}

// bytesOf returns how much of the buffer an argument takes, up to the next address that any element may have.
func bytesOf(argument any) int {
	bytes := 0
	switch argument := argument.(type) {
	case []byte:
		bytes = len(argument)
	case []int64:
		bytes = 8 * len(argument)
	case []float64:
		bytes = 8 * len(argument)
	case output:
		bytes = int(argument)
	}
	return (bytes + 7) &^ 7
}

// reserve returns where a buffer of at least this size is.
func (i *Instance) reserve(size int) (uint32, error) {
	if i.size > 0 && size <= int(i.size) && int(i.size) <= max(size, keptBytes) {
		return i.buffer, nil
	}
	if i.size > 0 {
		if _, err := i.ask("release", uint64(i.buffer), uint64(i.size)); err != nil {
			return 0, err
		}
		i.size = 0
	}
	if size > mostPages<<16 {
		return 0, errFull
	}
	size = max(size, 1<<12)
	address, err := i.ask("allocate", uint64(size))
	if err == nil && address == 0 {
		err = errFull
	}
	if err != nil {
		return 0, err
	}
	i.buffer, i.size = uint32(address), uint32(size)
	return i.buffer, nil
}

// ask calls a function with numbers alone.
func (i *Instance) ask(name string, words ...uint64) (int64, error) {
	copy(i.stack[:], words)
	return i.invoke(name, len(words))
}

// invoke calls an exported function with the first words of the stack. After a trap the instance is lost.
func (i *Instance) invoke(name string, words int) (answer int64, err error) {
	function := i.functions[name]
	if function == nil {
		function = i.module.ExportedFunction("steersman_" + name)
		i.functions[name] = function
	}
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%s: %v", bug, cause)
		}
		i.lost = i.lost || err != nil
	}()
	if err := function.CallWithStack(context.Background(), i.stack[:max(words, 1)]); err != nil {
		return 0, i.reason(err)
	}
	return int64(i.stack[0]), nil
}

// errorText returns the text of the last error, "" if it cannot be had.
func (i *Instance) errorText() string {
	i.stack[0], i.stack[1] = uint64(i.text), errorBytes
	if err := i.functions["error"].CallWithStack(context.Background(), i.stack[:2]); err != nil {
		return ""
	}
	text, _ := i.module.Memory().Read(i.text, min(uint32(i.stack[0]), errorBytes))
	return strings.ToValidUTF8(string(text), "?")
}

// reason returns why a call stopped: a panic leaves a text, and memory that cannot grow does not.
func (i *Instance) reason(trap error) error {
	text := i.errorText()
	switch cause, _, _ := strings.Cut(trap.Error(), "\n"); {
	case strings.Contains(cause, "unreachable") && (!strings.HasPrefix(text, bug) || strings.Contains(text, "capacity overflow")):
		return errFull
	case strings.HasPrefix(text, bug):
		return errors.New(text)
	default:
		return fmt.Errorf("%s: %s", bug, cause)
	}
}
