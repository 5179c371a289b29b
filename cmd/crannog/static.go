//go:build cgo

package main

// A plain go build on a machine with a C compiler would link this program to
// the host's libraries, and gVisor starts it again where there are none. So
// it is linked statically; everything in it is Go.

// #cgo LDFLAGS: -static
import "C"
