package gvisor

import (
	"os"
	"testing"

	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// processOf identifies a process that must exist.
func processOf(pid int) process.Process {
	p, err := process.Identify(pid)
	if err != nil {
		panic(err)
	}
	return p
}

// If processes cannot be listed, they do not count as absent.
func TestStraysAreUnknown(t *testing.T) {
	hosttest.WithoutDescriptors(t, func() {
		if strays, err := (&instance{rec: record{Kernel: "k"}}).untrackedProcesses(); err == nil {
			t.Errorf("strays were not looked for, and the result is %v", strays)
		}
	})
}

// An unreadable record ends no sandbox. Only a missing record allows its removal.
func TestUnreadableRecord(t *testing.T) {
	e := emptyEngine(t)
	if err := os.MkdirAll(e.instanceDir("iaaaaaaaaaaaaaaaaaaa")+"/"+sandboxdir.RecordName, 0o700); err != nil {
		t.Fatal(err)
	}
	if list, err := e.List(t.Context()); err == nil {
		t.Errorf("it is listed as %+v", list)
	}
}
