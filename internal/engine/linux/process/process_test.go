package process_test

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// A process of unknown state does not count as ended.
func TestUnknownStateCountsAsAlive(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/bin/cat")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := process.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	hosttest.WithoutDescriptors(t, func() {
		if err := p.Check(); err == nil || errors.Is(err, process.ErrGone) || !p.Alive() {
			t.Errorf("the process counts as ended: %v", err)
		}
		if err := p.Kill(time.Second); err == nil {
			t.Error("Kill returns success although the process was not killed")
		}
		go func() {
			p.Await()
			close(over)
		}()
		select {
		case <-over:
			t.Fatal("Await returned before the end")
		case <-time.After(100 * time.Millisecond):
		}
	})
	if err := p.Kill(hosttest.Patience(hosttest.Hang)); err != nil {
		t.Error(err)
	}
	if err := p.Check(); !errors.Is(err, process.ErrGone) {
		t.Errorf("control: a zombie counts as alive: %v", err)
	}
	_ = cmd.Wait() // it was killed
	if err := p.Check(); !errors.Is(err, process.ErrGone) {
		t.Errorf("control: %v", err)
	}
	select {
	case <-over:
	case <-hosttest.Late():
		t.Error("Await does not return after the end")
	}
}

// A later process with the same PID is a different one, and is never killed.
func TestReusedPID(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/bin/cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := process.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	earlier := process.Process{PID: p.PID, Start: p.Start - 1}
	if earlier.Alive() || !p.Alive() {
		t.Errorf("the earlier process lives: %v, this one: %v", earlier.Alive(), p.Alive())
	}
	if err := earlier.Kill(time.Second); err != nil {
		t.Error(err)
	}
	earlier.Await()
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("another process was killed: %v", err)
	}
}
