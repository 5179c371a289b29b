//go:build !cgo

package confine_test

// startedAgain reports whether a program restarts to be confined.
const startedAgain = false

// forgetful is only for the cgo build.
func forgetful() {}
