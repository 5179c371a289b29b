package events

import (
	"slices"
	"strings"
	"testing"
)

// A program cannot fill the record with its arguments, and values of variables are not in it.
func TestSetArguments(t *testing.T) {
	e := Event{Program: "/bin/sh"}
	e.SetArguments([]string{"sh", "-c", "true"}, []string{"KEY=secret", "EMPTY="})
	if !slices.Equal(e.Argv, []string{"sh", "-c", "true"}) || !slices.Equal(e.Env, []string{"KEY", "EMPTY"}) || e.Cut {
		t.Errorf("got %+v", e)
	}
	for name, argv := range map[string][]string{
		"many": make([]string, maxArgs+1), "long": {strings.Repeat("a", maxArgBytes+1)}, "no text": {"\xff"},
	} {
		var cut Event
		cut.SetArguments(argv, nil)
		if n := len(strings.Join(cut.Argv, "")); !cut.Cut || len(cut.Argv) > maxArgs || n > maxArgBytes {
			t.Errorf("%s: %d arguments of %d bytes, cut %t", name, len(cut.Argv), n, cut.Cut)
		}
	}
}
