package wasihttp

import (
	"runtime"
	"unsafe"
)

//go:wasmimport wasi_experimental_http req
func hostRequest(url unsafe.Pointer, urlLen uint32, method unsafe.Pointer, methodLen uint32, headers unsafe.Pointer, headersLen uint32, body unsafe.Pointer, bodyLen uint32, status, handle unsafe.Pointer) uint32

//go:wasmimport wasi_experimental_http close
func hostClose(handle uint32) uint32

//go:wasmimport wasi_experimental_http headers_get_all
func hostHeaders(handle uint32, buffer unsafe.Pointer, length uint32, written unsafe.Pointer) uint32

//go:wasmimport wasi_experimental_http body_read
func hostRead(handle uint32, buffer unsafe.Pointer, length uint32, written unsafe.Pointer) uint32

// result returns the error with a code.
func result(code uint32) error {
	if code == 0 {
		return nil
	}
	return Error(code)
}

func send(url, method, headers string, body []byte) (status int, handle uint32, err error) {
	var code uint16
	err = result(hostRequest(
		unsafe.Pointer(unsafe.StringData(url)), uint32(len(url)), unsafe.Pointer(unsafe.StringData(method)), uint32(len(method)),
		unsafe.Pointer(unsafe.StringData(headers)), uint32(len(headers)), unsafe.Pointer(unsafe.SliceData(body)), uint32(len(body)),
		unsafe.Pointer(&code), unsafe.Pointer(&handle)))
	runtime.KeepAlive(url)
	runtime.KeepAlive(method)
	runtime.KeepAlive(headers)
	runtime.KeepAlive(body)
	return int(code), handle, err
}

func headers(handle uint32, to []byte) (int, error) {
	var n uint32
	err := result(hostHeaders(handle, unsafe.Pointer(unsafe.SliceData(to)), uint32(len(to)), unsafe.Pointer(&n)))
	runtime.KeepAlive(to)
	return int(n), err
}

func read(handle uint32, to []byte) (int, error) {
	var n uint32
	err := result(hostRead(handle, unsafe.Pointer(unsafe.SliceData(to)), uint32(len(to)), unsafe.Pointer(&n)))
	runtime.KeepAlive(to)
	return int(n), err
}

func closeHandle(handle uint32) error { return result(hostClose(handle)) }
