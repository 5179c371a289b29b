package quickjs

import (
	"bytes"
	"errors"
	"math"
)

// errMemory is returned if the module's memory is full.
var errMemory = errors.New("out of memory: the code uses all memory of its WebAssembly instance")

// errBounds is returned if the module names memory that it does not have.
var errBounds = errors.New("QuickJS returned an address outside of its memory")

// withText calls do with the address and the length of a text in the module's memory.
func (vm *VM) withText(text string, do func(at, size uint64) (uint32, error)) (uint32, error) {
	return vm.withBytes([]byte(text), do)
}

func (vm *VM) withBytes(data []byte, do func(at, size uint64) (uint32, error)) (uint32, error) {
	if len(data) >= math.MaxInt32 {
		return 0, errMemory
	}
	at, err := vm.call("wasm_malloc", uint64(len(data)+1))
	if err != nil {
		return 0, err
	}
	if at == 0 {
		return 0, errMemory
	}
	// The module's functions for text expect a zero byte at the end.
	memory := vm.module.Memory()
	if !memory.Write(at, data) || !memory.WriteByte(at+uint32(len(data)), 0) { //nolint:gosec // its length was checked
		return 0, errBounds
	}
	result, err := do(uint64(at), uint64(len(data)))
	return result, errors.Join(err, vm.do("wasm_free", uint64(at)))
}

// newValue returns a string or a Uint8Array.
func (vm *VM) newValue(r Result) (value, error) {
	create := "qjs_new_string"
	if r.Binary {
		create = "qjs_new_uint8_array"
	}
	v, err := vm.withBytes(r.Data, func(at, size uint64) (uint32, error) { return vm.call(create, at, size) })
	if err != nil {
		return 0, err
	}
	failed, err := vm.call("qjs_is_exception", uint64(v))
	if err == nil && failed != 0 {
		err = errMemory
	}
	return value(v), err
}

// take returns a value as a string and releases it.
func (vm *VM) take(v value) (string, error) {
	failed, err := vm.call("qjs_is_exception", uint64(v))
	if err != nil {
		return "", err
	}
	if failed != 0 {
		return "", vm.exception()
	}
	text, err := vm.text(v)
	return string(text), errors.Join(err, vm.release(v))
}

// text returns a value as a string.
func (vm *VM) text(v value) ([]byte, error) {
	return vm.withNumbers(1, func(at uint32) (uint32, uint32, error) {
		text, err := vm.call("qjs_get_string_len", uint64(v), uint64(at))
		if err != nil || text == 0 {
			return 0, 0, errors.Join(err, errMemory)
		}
		size, ok := vm.module.Memory().ReadUint32Le(at)
		if !ok {
			return 0, 0, errBounds
		}
		return text, size, nil
	}, "qjs_free_cstring")
}

// withNumbers calls find with memory for n numbers, and returns a copy of the memory that it found.
// The function free, unless it is "", then releases that memory.
func (vm *VM) withNumbers(n uint64, find func(at uint32) (address, size uint32, err error), free string) ([]byte, error) {
	numbers, err := vm.call("wasm_malloc", 4*n)
	if err != nil {
		return nil, err
	}
	if numbers == 0 {
		return nil, errMemory
	}
	at, size, err := find(numbers)
	if err := errors.Join(err, vm.do("wasm_free", uint64(numbers))); err != nil {
		return nil, err
	}
	data, ok := vm.module.Memory().Read(at, size)
	if !ok {
		return nil, errBounds
	}
	data = bytes.Clone(data)
	if free == "" {
		return data, nil
	}
	return data, vm.do(free, uint64(at))
}

// bytes returns the content of an argument of a host call: a string, or a Uint8Array.
func (vm *VM) bytes(v value) ([]byte, error) {
	isString, err := vm.call("qjs_is_string", uint64(v))
	if err != nil {
		return nil, err
	}
	if isString != 0 {
		return vm.text(v)
	}
	return vm.withNumbers(4, func(at uint32) (uint32, uint32, error) {
		buffer, err := vm.call("qjs_get_typed_array_buffer", uint64(v), uint64(at), uint64(at+4), uint64(at+8))
		if err != nil {
			return 0, 0, err
		}
		failed, err := vm.call("qjs_is_exception", uint64(buffer))
		if err == nil && failed != 0 {
			err = errors.Join(vm.exception(), errArgument)
		}
		if err != nil {
			return 0, 0, err
		}
		start, err := vm.call("qjs_get_array_buffer", uint64(buffer), uint64(at+12))
		if err := errors.Join(err, vm.release(value(buffer))); err != nil {
			return 0, 0, err
		}
		offset, ok := vm.module.Memory().ReadUint32Le(at)
		size, known := vm.module.Memory().ReadUint32Le(at + 4)
		if !ok || !known || uint64(start)+uint64(offset) > math.MaxUint32 {
			return 0, 0, errBounds
		}
		return start + offset, size, nil
	}, "")
}

// errArgument is thrown for arguments of other types.
var errArgument = errors.New("expected a string or a Uint8Array")
