//go:build race

package lifecycle_test

const raceDetector = true
