// Package quickjs owns the interface of the QuickJS module, which is JavaScript on WebAssembly: it
// evaluates code in an instance of the module and calls functions of the code. The module itself is
// in package embedded/quickjsbin.
package quickjs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// stackBytes is the maximum of the module's own stack. Deeper recursion is an error that code can
// catch. It is small enough that the runtime's stack is never the first to end, which would end the
// instance.
const stackBytes = 256 << 10

// reservedPart is the part of the memory that QuickJS does not use for values: the module's stack
// and data, and what its allocator loses. Another part is used only to report errors, after code has
// used up the rest.
const reservedPart = 16

// Host is what code can reach outside of the module.
type Host interface {
	// Call answers an operation of the code. Strings arrive in UTF-8. An error is thrown as an Error
	// with the same text.
	Call(operation string, arguments [][]byte) (Result, error)
}

// Result is the result of an operation.
type Result struct {
	Data []byte
	// Binary makes the result a Uint8Array. Otherwise it is a string.
	Binary bool
}

// ErrInterrupted is returned if Interrupt ended the code.
var ErrInterrupted = errors.New("the execution was interrupted")

// value is a reference to a JavaScript value. The module holds the value until it is released.
type value uint32

// VM is an instance of the module. Only Interrupt and ForgetInterrupt may be called concurrently.
type VM struct {
	ctx       context.Context //nolint:containedctx // wazero wants it in each call, and there is one per process
	module    api.Module
	functions map[string]api.Function
	host      Host
	undefined value
	// limit is the limit for the values of evaluated code, and full the limit for reporting errors.
	limit, full uint64
	// interrupt is set until the running code has ended.
	interrupt atomic.Bool
	// rejections has the reasons of rejected promises without a handler, by promise.
	rejections map[uint32]value
}

// Define defines the functions that the module imports. The host may be used once New has been
// called with the result.
func Define(ctx context.Context, r wazero.Runtime, host Host) (*VM, error) {
	vm := &VM{ctx: ctx, host: host, functions: map[string]api.Function{}, rejections: map[uint32]value{}}
	_, err := r.NewHostModuleBuilder("env").
		NewFunctionBuilder().WithFunc(func(uint32, uint32) uint32 { return 0 }).Export("host_get_timezone_offset").
		NewFunctionBuilder().WithFunc(vm.interrupted).Export("host_interrupt").
		NewFunctionBuilder().WithFunc(vm.rejected).Export("host_promise_rejection").
		NewFunctionBuilder().WithFunc(func(uint32, uint32) uint32 { return 0 }).Export("host_module_normalize").
		NewFunctionBuilder().WithFunc(func(uint32, uint32) uint32 { return 0 }).Export("host_module_load").
		NewFunctionBuilder().WithFunc(vm.hostCall).Export("host_call").
		Instantiate(ctx)
	return vm, err
}

// Start uses an instance of the module, with a limit for all values of the code.
func (vm *VM) Start(module api.Module, memory int64) error {
	vm.module = module
	if err := vm.do("_initialize"); err != nil {
		return err
	}
	status, err := vm.call("qjs_init")
	if err == nil && status != 0 {
		err = fmt.Errorf("QuickJS did not start: status %d", status)
	}
	if err != nil {
		return err
	}
	part := min(memory, math.MaxInt32) / reservedPart
	vm.limit, vm.full = uint64((reservedPart-2)*part), uint64((reservedPart-1)*part) //nolint:gosec // at most MaxInt32
	if err := errors.Join(vm.do("qjs_set_memory_limit", vm.limit), vm.do("qjs_set_max_stack_size", stackBytes),
		vm.do("qjs_set_interrupt_handler", 1), vm.do("qjs_set_promise_rejection_handler", 1)); err != nil {
		return err
	}
	undefined, err := vm.call("qjs_get_undefined")
	vm.undefined = value(undefined)
	return err
}

// call calls a function of the module.
func (vm *VM) call(name string, args ...uint64) (uint32, error) {
	f := vm.functions[name]
	if f == nil {
		if f = vm.module.ExportedFunction(name); f == nil {
			return 0, fmt.Errorf("the module of QuickJS exports no function %s", name)
		}
		vm.functions[name] = f
	}
	results, err := f.Call(vm.ctx, args...)
	if err != nil {
		return 0, fmt.Errorf("QuickJS: %w", err)
	}
	if len(results) == 0 {
		return 0, nil
	}
	return uint32(results[0]), nil //nolint:gosec // all functions that are called return an i32
}

// do calls a function without a result.
func (vm *VM) do(name string, args ...uint64) error {
	_, err := vm.call(name, args...)
	return err
}

// release releases a value.
func (vm *VM) release(v value) error { return vm.do("qjs_free_value", uint64(v)) }

// interrupted is called by QuickJS after each few thousand operations.
func (vm *VM) interrupted() uint32 {
	// A module's loop would keep a single processor from the goroutine that receives signals.
	runtime.Gosched()
	if vm.interrupt.Load() {
		return 1
	}
	return 0
}

// Interrupt ends the code that runs, or otherwise the next code. The code cannot catch this.
func (vm *VM) Interrupt() { vm.interrupt.Store(true) }

// ForgetInterrupt discards an interrupt that has ended no code.
func (vm *VM) ForgetInterrupt() { vm.interrupt.Store(false) }

// rejected is called for a promise that is rejected without a handler, and again if it gets one.
func (vm *VM) rejected(promise, reason, handled uint32) {
	object, err := vm.call("qjs_get_value_ptr", uint64(promise))
	unused := []value{value(promise)}
	if known, ok := vm.rejections[object]; ok {
		unused = append(unused, known)
		delete(vm.rejections, object)
	}
	if handled != 0 || len(vm.rejections) >= maxRejections {
		unused = append(unused, value(reason))
	} else {
		vm.rejections[object] = value(reason)
	}
	for _, v := range unused {
		err = errors.Join(err, vm.release(v))
	}
	if err != nil {
		panic(err) // a trap, which ends the instance
	}
}

// maxRejections is the maximum number of rejected promises that are reported at once.
const maxRejections = 100

// Unhandled returns the reasons of promises that were rejected and have no handler, once each.
func (vm *VM) Unhandled() ([]string, error) {
	var texts []string
	var errs []error
	for object, reason := range vm.rejections {
		delete(vm.rejections, object)
		text, err := vm.take(reason)
		if thrown, ok := errors.AsType[*Error](err); ok {
			text, err = thrown.Text, nil // the code's own function for the text failed
		}
		texts, errs = append(texts, text), append(errs, err)
	}
	return texts, errors.Join(errs...)
}
