//go:build cgo

package main

// gVisor starts this program again where none of the host's libraries can be
// seen, so it must need none. A build without cgo is static anyway; with cgo,
// which is what a plain go build does where a C compiler is found, the linker
// has to be told.

// #cgo LDFLAGS: -static
import "C"
