package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestPSSNamed(t *testing.T) {
	name := filepath.Base(t.TempDir()) + "-of-a-test"
	// A running process is found by its arguments, and not when it has ended.
	cmd := exec.Command("sh", "-c", "read line", name)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if m, err := pssNamed(name); err != nil || m.all <= 0 {
		t.Errorf("the memory of a running process: got %+v, %v, want more than 0", m, err)
	}
	in.Close()
	_ = cmd.Wait() // sh reports the end of its input as an error
	if m, err := pssNamed(name); err != nil || m.all != 0 {
		t.Errorf("a process that has ended: got %+v, %v", m, err)
	}
}

func TestKernelOf(t *testing.T) {
	state := t.TempDir()
	if err := os.MkdirAll(filepath.Join(state, "run", "abc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{`{"id":"abc","kernel":"k1"}`: "k1", `{"id":"abc"}`: "", `{`: ""} {
		if err := os.WriteFile(filepath.Join(state, "run", "abc", "sandbox.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := kernelOf(state, "abc"); got != want || (err == nil) != (want != "") {
			t.Errorf("kernelOf with the file %s: got %q, %v, want %q", text, got, err, want)
		}
	}
}

// TestPausedMustBeFoundFirst checks that a sandbox that was not found while it ran is an error, and
// does not count as using no memory.
func TestPausedMustBeFoundFirst(t *testing.T) {
	state := t.TempDir()
	sb := filepath.Join(state, "run", "abc")
	if err := os.MkdirAll(sb, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(sb, "box.json"), []byte(`{"kernel":"`+filepath.Base(state)+`-in-no-arguments"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newScores()
	err := s.addPaused(&server{state: state}, "paused", []string{"abc"}, func() error { t.Error("the sandbox was paused although it was not found"); return nil })
	if err == nil || len(s.by) != 0 {
		t.Errorf("a sandbox that was not found: got the scores %v, %v, want an error", s.by, err)
	}
}
