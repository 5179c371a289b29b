// Command requests is a WebAssembly module for the tests. It calls the functions of the module
// wasi_experimental_http itself, as programs in other languages do, and prints what they return.
package main

import (
	"os"
	"runtime"
	"strconv"
	"unsafe"
)

//go:wasmimport wasi_experimental_http req
func request(url unsafe.Pointer, urlLen uint32, method unsafe.Pointer, methodLen uint32, headers unsafe.Pointer, headersLen uint32, body unsafe.Pointer, bodyLen uint32, status, handle unsafe.Pointer) uint32

//go:wasmimport wasi_experimental_http close
func closeHandle(handle uint32) uint32

//go:wasmimport wasi_experimental_http header_get
func header(handle uint32, name unsafe.Pointer, nameLen uint32, value unsafe.Pointer, valueLen uint32, written unsafe.Pointer) uint32

//go:wasmimport wasi_experimental_http headers_get_all
func headers(handle uint32, value unsafe.Pointer, valueLen uint32, written unsafe.Pointer) uint32

//go:wasmimport wasi_experimental_http body_read
func read(handle uint32, to unsafe.Pointer, toLen uint32, written unsafe.Pointer) uint32

func pointer(text string) unsafe.Pointer { return unsafe.Pointer(unsafe.StringData(text)) }

func say(name string, n uint32) { os.Stdout.WriteString(name + "=" + strconv.Itoa(int(n)) + "\n") }

func send(method, url, lines, body string) (handle, code uint32) {
	var status uint16
	code = request(pointer(url), uint32(len(url)), pointer(method), uint32(len(method)), pointer(lines), uint32(len(lines)), pointer(body), uint32(len(body)), unsafe.Pointer(&status), unsafe.Pointer(&handle))
	runtime.KeepAlive(body)
	say("req", code)
	if code == 0 {
		say("status", uint32(status))
	}
	return handle, code
}

// show prints the header X-Answer and the body of an answer.
func show(handle uint32) {
	var n uint32
	buffer := make([]byte, 16)
	if code := header(handle, pointer("x-answer"), 8, unsafe.Pointer(&buffer[0]), uint32(len(buffer)), unsafe.Pointer(&n)); code == 0 {
		os.Stdout.WriteString("x-answer=" + string(buffer[:n]) + "\n")
	} else {
		say("header", code)
	}
	for {
		code := read(handle, unsafe.Pointer(&buffer[0]), uint32(len(buffer)), unsafe.Pointer(&n))
		if code != 0 {
			say("read", code)
		}
		if code != 0 || n == 0 {
			return
		}
		os.Stdout.Write(buffer[:n])
	}
}

func main() {
	switch os.Args[1] {
	case "send": // METHOD URL HEADERS BODY
		if handle, code := send(os.Args[2], os.Args[3], os.Args[4], os.Args[5]); code == 0 {
			show(handle)
			say("close", closeHandle(handle))
			say("close again", closeHandle(handle))
		}
	case "size": // BYTES of a body
		n, _ := strconv.Atoi(os.Args[2])
		send("POST", "http://allowed.test/count", "", string(make([]byte, n)))
	case "long": // a URL that is too long
		send("GET", "http://allowed.test/"+string(make([]byte, 9000)), "", "")
	case "handles":
		for {
			if _, code := send("GET", "http://allowed.test/", "", ""); code != 0 {
				return
			}
		}
	case "addresses": // outside of the memory
		var status uint16
		var handle uint32
		say("req", request(unsafe.Pointer(uintptr(0xfffffff0)), 100, pointer("GET"), 3, nil, 0, nil, 0, unsafe.Pointer(&status), unsafe.Pointer(&handle)))
		say("no answer", read(7, unsafe.Pointer(&handle), 4, unsafe.Pointer(&handle)))
		if got, code := send("GET", "http://allowed.test/", "", ""); code == 0 {
			say("read", read(got, unsafe.Pointer(uintptr(0xfffffff0)), 100, unsafe.Pointer(&handle)))
			say("headers", headers(got, unsafe.Pointer(&handle), 2, unsafe.Pointer(&handle)))
		}
	}
}
