//go:build cgo && !race

package confine_test

// startedAgain is whether a program is started again to be confined.
const startedAgain = true
