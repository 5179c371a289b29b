package main

import (
	"os"
	"slices"
)

// Collecting garbage is a quarter of the compiler's work, and its processes are short. So they get
// more memory instead, unless the caller has set something.
const (
	collection = "GOGC"
	fewer      = "400"
	// setHere is set in the environment if the value is ours, so that the test programs do not get
	// it: they must behave as they do for a user.
	setHere = "CRANNOG_TIMING_COLLECTION"
)

// compilerEnv returns the environment of "go test".
func compilerEnv(env []string) []string {
	if _, chosen := os.LookupEnv(collection); chosen {
		return env
	}
	return append(slices.Clone(env), collection+"="+fewer, setHere+"=1")
}

// restoreEnv removes what compilerEnv has added. It is called before a test program starts.
func restoreEnv() error {
	if os.Getenv(setHere) == "" {
		return nil
	}
	if err := os.Unsetenv(collection); err != nil {
		return err
	}
	return os.Unsetenv(setHere)
}
