package main

import (
	"fmt"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// longer runs a command that sets a limit of LIFE seconds: first 3, then twice as many each time
// until the command succeeds. A failure with a short limit proves nothing, because a slow machine
// may not have booted the sandbox in time. A failure with the longest limit fails the script.
func longer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: longer COMMAND [ARGUMENT...]")
	}
	for life := 3 * time.Second; ; life *= 2 {
		ts.Setenv("LIFE", fmt.Sprint(int(life.Seconds())))
		err := ts.Exec(args[0], args[1:]...)
		if err == nil {
			return
		}
		ts.Logf("with %s: %v", life, err)
		if life > hosttest.Patience(30*time.Second) {
			ts.Fatalf("%s failed with a limit of %s, and with all shorter limits", args[0], life)
		}
	}
}
