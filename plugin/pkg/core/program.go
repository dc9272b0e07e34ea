// Package core runs steersman's compiled core (core/ in Rust) as WebAssembly: the same bits as in Python and in a
// browser.
//
// A panic of the core, memory that runs out and an infinite recursion are errors, after which an Instance is lost.
package core

import (
	"context"
	_ "embed"
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero"
)

// mostPages is how many pages of 64 KiB an instance may have: 1 GiB.
const mostPages = 1 << 14

//go:embed core.wasm
var wasm []byte

type program struct {
	runtime wazero.Runtime
	module  wazero.CompiledModule
}

// compiled returns the core as machine code. The first call compiles it, which takes half a second.
var compiled = sync.OnceValues(func() (result program, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the core cannot be compiled here: %v", cause)
		}
	}()
	ctx := context.Background()
	// A compiler for processors that have one, else an interpreter.
	result.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(mostPages))
	if result.module, err = result.runtime.CompileModule(ctx, wasm); err != nil {
		return program{}, fmt.Errorf("the core cannot be compiled here: %w", err)
	}
	return result, nil
})

// Compile compiles the core, unless that is done, so that the first call of it does not wait.
func Compile() error {
	_, err := compiled()
	return err
}
