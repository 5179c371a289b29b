package quickjs

import (
	"errors"
)

// HostFunction is the name of the global function with which code calls the host: its first
// argument names the operation. Three operations are answered here: "eval" evaluates a script as a
// global one, "check" throws the error of a script with wrong syntax, and "memory" frees unused memory and
// returns "full" if evaluated code has used up the rest.
const HostFunction = "host"

// maxArguments is the maximum number of arguments of a host call.
const maxArguments = 8

// Expose defines the global function HostFunction.
func (vm *VM) Expose() error {
	f, err := vm.withText(HostFunction, func(at, size uint64) (uint32, error) {
		return vm.call("qjs_new_host_function", at, size, 0)
	})
	if err != nil {
		return err
	}
	global, err := vm.call("qjs_get_global")
	if err != nil {
		return err
	}
	_, err = vm.withText(HostFunction, func(at, _ uint64) (uint32, error) {
		return vm.call("qjs_set_prop_string", uint64(global), at, uint64(f))
	})
	return errors.Join(err, vm.release(value(f)), vm.release(value(global)))
}

// hostCall answers a call of the host function. It returns a new value, or 0 if an exception is
// pending. Arguments belong to the caller.
func (vm *VM) hostCall(_, _, _, argc, argv uint32) uint32 {
	result, err := vm.answer(argc, argv)
	if err == nil {
		return uint32(result)
	}
	if errors.Is(err, errPending) {
		return 0
	}
	if err := vm.throw(err.Error()); err != nil {
		panic(err) // a trap, which ends the instance
	}
	return 0
}

// errPending is returned if the exception to throw is already pending.
var errPending = errors.New("an exception is pending")

// answer reads the arguments and calls the operation.
func (vm *VM) answer(argc, argv uint32) (value, error) {
	if argc == 0 || argc > maxArguments {
		return 0, errArgument
	}
	var arguments [][]byte
	for i := range argc {
		v, ok := vm.module.Memory().ReadUint32Le(argv + 4*i)
		if !ok {
			return 0, errBounds
		}
		data, err := vm.bytes(value(v))
		if err != nil {
			return 0, err
		}
		arguments = append(arguments, data)
	}
	operation, arguments := string(arguments[0]), arguments[1:]
	switch operation {
	case "memory":
		return vm.freeMemory()
	case "eval", "check":
		if len(arguments) != 2 {
			return 0, errArgument
		}
		return vm.script(operation, string(arguments[0]), string(arguments[1]))
	}
	result, err := vm.host.Call(operation, arguments)
	if err != nil {
		return 0, err
	}
	return vm.newValue(result)
}

// script evaluates or checks a script.
func (vm *VM) script(operation, code, file string) (value, error) {
	if operation == "check" {
		ok, err := vm.check(code, file)
		if err == nil && !ok {
			err = errPending
		}
		if err != nil {
			return 0, err
		}
		// The caller releases the result.
		undefined, err := vm.call("qjs_dup_value", uint64(vm.undefined))
		return value(undefined), err
	}
	if err := vm.do("qjs_set_memory_limit", vm.limit); err != nil {
		return 0, err
	}
	result, err := vm.withText(code, func(at, size uint64) (uint32, error) {
		return vm.withText(file, func(name, _ uint64) (uint32, error) { return vm.call("qjs_eval", at, size, name, 0) })
	})
	if err != nil {
		return 0, err
	}
	failed, err := vm.call("qjs_is_exception", uint64(result))
	if err != nil || failed == 0 {
		return value(result), err
	}
	// If the code has used up the memory, not even its error could be passed on.
	if err := vm.do("qjs_set_memory_limit", vm.full); err != nil {
		return 0, err
	}
	return 0, vm.rethrow()
}

// rethrow leaves an exception pending that can be caught. QuickJS has errors that end all code,
// such as interrupts and a full memory. They must end only the script.
func (vm *VM) rethrow() error {
	thrown, err := vm.call("qjs_get_exception")
	if err != nil {
		return err
	}
	uncatchable, err := vm.call("qjs_is_uncatchable_error", uint64(thrown))
	if err != nil {
		return err
	}
	again, err := vm.call("qjs_throw", uint64(thrown))
	if err := errors.Join(err, vm.release(value(again)), vm.release(value(thrown))); err != nil {
		return err
	}
	if uncatchable != 0 {
		return vm.exception()
	}
	return errPending
}

// nearlyFull is the part of the limit, in percent, from which it counts as reached.
const nearlyFull = 95

// freeMemory answers the operation "memory".
func (vm *VM) freeMemory() (value, error) {
	if err := vm.do("qjs_run_gc"); err != nil {
		return 0, err
	}
	used, err := vm.call("qjs_get_allocated_size")
	if err != nil {
		return 0, err
	}
	text := ""
	if uint64(used)*100 > vm.limit*nearlyFull {
		text = "full"
	}
	return vm.newValue(Result{Data: []byte(text)})
}

// throw makes an Error with a text pending.
func (vm *VM) throw(text string) error {
	e, err := vm.call("qjs_new_error")
	if err != nil {
		return err
	}
	message, err := vm.newValue(Result{Data: []byte(text)})
	if err != nil {
		return err
	}
	_, err = vm.withText("message", func(at, _ uint64) (uint32, error) {
		return vm.call("qjs_set_prop_string", uint64(e), at, uint64(message))
	})
	thrown, throwErr := vm.call("qjs_throw", uint64(e))
	return errors.Join(err, throwErr, vm.release(message), vm.release(value(e)), vm.release(value(thrown)))
}
