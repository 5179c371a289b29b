//go:build !cgo

package confine_test

// programRestarts reports whether a program restarts to be confined.
const programRestarts = false

// skipStep is used only in the cgo build.
func skipStep() {}
