package main

import (
	"os"
	"slices"
	"testing"
)

// The compiler collects garbage less often, and the test programs as often as ever. A value that
// the caller has set holds for both.
func TestCompilerCollectsLess(t *testing.T) {
	for _, chosen := range []string{"", "50"} {
		want := []string{collection + "=" + fewer, setHere + "=1"}
		t.Setenv(collection, chosen)
		if chosen == "" {
			if err := os.Unsetenv(collection); err != nil {
				t.Fatal(err)
			}
		} else {
			want = nil
		}
		env := compilerEnv([]string{"A=1"})
		if !slices.Equal(env, append([]string{"A=1"}, want...)) {
			t.Errorf("with GOGC %q, go test gets %q", chosen, env)
		}
		if chosen == "" {
			t.Setenv(collection, fewer)
			t.Setenv(setHere, "1")
		}
		if err := restoreEnv(); err != nil {
			t.Fatal(err)
		}
		if got := os.Getenv(collection); got != chosen || os.Getenv(setHere) != "" {
			t.Errorf("with GOGC %q, a test program gets %q", chosen, got)
		}
	}
}
