package quickjs

import (
	"errors"
	"fmt"
	"strings"
)

// Function is a function of the code.
type Function struct {
	vm *VM
	f  value
}

// Load evaluates a script whose value is an object, and returns functions of the object by name.
func (vm *VM) Load(code, file string, names ...string) (map[string]Function, error) {
	object, err := vm.eval(code, file)
	if err != nil {
		return nil, err
	}
	functions := map[string]Function{}
	for _, name := range names {
		property, err := vm.withText(name, func(at, _ uint64) (uint32, error) {
			return vm.call("qjs_get_prop_string", uint64(object), at)
		})
		if err != nil {
			return nil, err
		}
		functions[name] = Function{vm, value(property)}
	}
	return functions, vm.release(object)
}

// Call calls the function with strings and returns its result as a string.
func (f Function) Call(arguments ...string) (string, error) {
	vm := f.vm
	argv, err := vm.call("wasm_malloc", uint64(4*max(len(arguments), 1)))
	if err != nil {
		return "", err
	}
	if argv == 0 {
		return "", errMemory
	}
	var values []value
	for i, text := range arguments {
		v, err := vm.newValue(Result{Data: []byte(text)})
		if err != nil {
			return "", err
		}
		values = append(values, v)
		vm.module.Memory().WriteUint32Le(argv+uint32(4*i), uint32(v)) //nolint:gosec // there are few arguments
	}
	result, err := vm.call("qjs_call", uint64(f.f), uint64(vm.undefined), uint64(len(arguments)), uint64(argv))
	errs := []error{err, vm.do("wasm_free", uint64(argv))}
	for _, v := range values {
		errs = append(errs, vm.release(v))
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	return vm.take(value(result))
}

// RunJobs runs the pending jobs of promises. It stops at a job that failed.
func (vm *VM) RunJobs() error {
	for {
		pending, err := vm.call("qjs_is_job_pending")
		if err != nil || pending == 0 {
			return err
		}
		status, err := vm.call("qjs_execute_pending_job")
		if err != nil {
			return err
		}
		if int32(status) < 0 { //nolint:gosec // C's int
			return vm.exception()
		}
	}
}

// eval evaluates a script.
func (vm *VM) eval(code, file string) (value, error) {
	result, err := vm.withText(code, func(at, size uint64) (uint32, error) {
		return vm.withText(file, func(name, _ uint64) (uint32, error) { return vm.call("qjs_eval", at, size, name, 0) })
	})
	if err != nil {
		return 0, err
	}
	failed, err := vm.call("qjs_is_exception", uint64(result))
	if err != nil {
		return 0, err
	}
	if failed != 0 {
		return 0, vm.exception()
	}
	return value(result), nil
}

// check reports whether a script has correct syntax. If it does not, an exception is pending.
func (vm *VM) check(code, file string) (bool, error) {
	size, err := vm.call("wasm_malloc", 4)
	if err != nil {
		return false, err
	}
	compiled, err := vm.withText(code, func(at, length uint64) (uint32, error) {
		return vm.withText(file, func(name, _ uint64) (uint32, error) {
			return vm.call("qjs_compile", at, length, name, 0, 0, uint64(size))
		})
	})
	if err := errors.Join(err, vm.do("wasm_free", uint64(size))); err != nil || compiled == 0 {
		return false, err
	}
	return true, vm.do("wasm_free", uint64(compiled))
}

// Error is an error that code threw.
type Error struct{ Text string }

// OutOfMemory reports whether the code had no memory left.
func (e *Error) OutOfMemory() bool { return strings.HasSuffix(e.Text, "out of memory") }

// Error implements error.
func (e *Error) Error() string { return e.Text }

// exception takes the pending exception as an error.
func (vm *VM) exception() error {
	thrown, err := vm.call("qjs_get_exception")
	if err != nil {
		return err
	}
	uncatchable, err := vm.call("qjs_is_uncatchable_error", uint64(thrown))
	if err != nil {
		return err
	}
	if uncatchable != 0 && vm.interrupt.Swap(false) {
		return errors.Join(ErrInterrupted, vm.release(value(thrown)))
	}
	text, err := vm.take(value(thrown))
	if err != nil {
		text = fmt.Sprintf("an error without a text: %v", err)
	}
	return &Error{text}
}
