package gvisor

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// processOf is identify of a process that is known to be there.
func processOf(pid int) process {
	p, err := identify(pid)
	if err != nil {
		panic(err)
	}
	return p
}

// withoutDescriptors calls a function while this process can open nothing.
func withoutDescriptors(t *testing.T, do func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}()
	if _, err := os.ReadFile("/proc/" + strconv.Itoa(os.Getpid()) + "/stat"); !errors.Is(err, unix.EMFILE) {
		t.Fatalf("control: %v", err)
	}
	do()
}

// A process whose state cannot be determined is not treated as ended.
func TestUnknownIsNotDead(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/bin/cat")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := processOf(cmd.Process.Pid)
	over := make(chan struct{})
	withoutDescriptors(t, func() {
		if err := p.look(); err == nil || errors.Is(err, errGone) || !p.alive() {
			t.Errorf("it is told as ended: %v", err)
		}
		if err := p.kill(time.Second); err == nil {
			t.Error("it was not killed, and that is told as success")
		}
		if strays, err := (&box{rec: record{Kernel: "k"}}).strays(); err == nil {
			t.Errorf("strays were not looked for, and the result is %v", strays)
		}
		go func() {
			p.awaitEnd()
			close(over)
		}()
		select {
		case <-over:
			t.Fatal("it ended, say those who wait for it")
		case <-time.After(100 * time.Millisecond):
		}
	})
	if err := p.kill(hosttest.Patience(hosttest.Hang)); err != nil {
		t.Error(err)
	}
	if err := p.look(); !errors.Is(err, errGone) {
		t.Errorf("control: a zombie runs: %v", err)
	}
	_ = cmd.Wait() // it was killed
	if err := p.look(); !errors.Is(err, errGone) {
		t.Errorf("control: %v", err)
	}
	select {
	case <-over:
	case <-hosttest.Late():
		t.Error("who waits for the end does not see it")
	}
}

// A record that cannot be read ends no sandbox: only a missing record lets a sandbox be removed.
func TestUnreadableRecord(t *testing.T) {
	e := emptyEngine(t)
	if err := os.MkdirAll(e.boxDir("iaaaaaaaaaaaaaaaaaaa")+"/"+recordName, 0o700); err != nil {
		t.Fatal(err)
	}
	if list, err := e.List(t.Context()); err == nil {
		t.Errorf("it is listed as %+v", list)
	}
}
