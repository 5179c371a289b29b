//go:build !cgo

package gvisor

// linkedWithC is true for a build with cgo.
const linkedWithC = false

// tameLibc does nothing, because this program has no glibc.
func tameLibc() error { return nil }
