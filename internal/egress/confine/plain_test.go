//go:build !cgo

package confine_test

// startedAgain reports whether a program is started again to be confined.
const startedAgain = false

// forgetful is for the other build.
func forgetful() {}
