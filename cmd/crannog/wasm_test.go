package main

import (
	"os"
	"os/exec"

	"github.com/rogpeppe/go-internal/testscript"
)

// buildModule builds a program in Go for WASI: buildmodule OUT DIR.
func buildModule(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: buildmodule OUT DIR")
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", ts.MkAbs(args[0]), ".")
	build.Dir = ts.MkAbs(args[1])
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		ts.Fatalf("build: %v\n%s", err, out)
	}
}
