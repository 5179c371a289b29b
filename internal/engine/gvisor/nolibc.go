//go:build !cgo

package gvisor

// linkedWithC is true for a build with cgo.
const linkedWithC = false

// restartWithTunables does nothing, because this program has no glibc.
func restartWithTunables() error { return nil }
