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
func TestUntrackedProcessesReportsListError(t *testing.T) {
	hosttest.WithoutDescriptors(t, func() {
		if processes, err := (&instance{rec: record{Kernel: "k"}}).untrackedProcesses(); err == nil {
			t.Errorf("processes cannot be listed, and the result is %v without an error", processes)
		}
	})
}

// List returns an error for an unreadable record. Otherwise the caller would remove the sandbox as
// unknown.
func TestListReportsUnreadableRecord(t *testing.T) {
	e := emptyEngine(t)
	if err := os.MkdirAll(e.instanceDir("iaaaaaaaaaaaaaaaaaaa")+"/"+sandboxdir.RecordName, 0o700); err != nil {
		t.Fatal(err)
	}
	if list, err := e.List(t.Context()); err == nil {
		t.Errorf("List returned %+v without an error", list)
	}
}
