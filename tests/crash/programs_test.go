package crash_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/hosttest"
	"github.com/crannog/crannog/internal/servetest"
)

// P7: an upgrade of the host's programs takes the memory of a paused sandbox, and
// not its files. Where a program that ran is gone for good nothing comes out, and
// nothing is lost.
func TestAcrossOtherPrograms(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for name, gone := range map[string]bool{"replaced": false, "removed": true} {
		t.Run(name, func(t *testing.T) {
			state, programs := t.TempDir(), t.TempDir()
			for file, from := range map[string]string{"program": "/bin/sleep", "next": "/bin/true"} {
				data, err := os.ReadFile(from)
				if err == nil {
					err = os.WriteFile(filepath.Join(programs, file), data, 0o755)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			s := servetest.Start(t, program, state)
			sb, err := s.Local(t).Create(t.Context(), crannog.Programs(programs), crannog.Timeout(life))
			if err != nil {
				t.Fatal(err)
			}
			output(t, sb, "echo precious > file; setsid /.crannog/programs/1/program 1000 >/dev/null 2>&1 & "+
				"while ! pgrep -f '^/.crannog/programs' >/dev/null; do sleep 0.02; done")
			if err := sb.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			current := filepath.Join(programs, "program")
			if err := os.Remove(current); err != nil {
				t.Fatal(err)
			}
			refused := func(err error) {
				t.Helper()
				if e, ok := errors.AsType[*crannog.Error](err); !ok || e.Code != "snapshot_programs_changed" {
					t.Errorf("%v\n%s", err, s.Stderr())
				}
			}
			if gone {
				refused(sb.ResumeFiles(t.Context(), 0))
			}
			if err := os.Rename(filepath.Join(programs, "next"), current); err != nil {
				t.Fatal(err)
			}
			refused(sb.Resume(t.Context(), 0))
			if err := sb.ResumeFiles(t.Context(), 0); err != nil {
				t.Fatalf("%v\n%s", err, s.Stderr())
			}
			if got := output(t, sb, "cat file; pgrep -f '^/.crannog/programs' || echo none"); got != "precious\nnone" {
				t.Errorf("it has %q", got)
			}
			// It began anew, so its memory goes with the new programs.
			if err := sb.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := sb.Resume(t.Context(), 0); err != nil {
				t.Error(err)
			}
			s.Stop(t)
		})
	}
}

// F24: a change of the host's programs that the memory of a sandbox does not refer
// to changes nothing; one that it refers to is named.
func TestF24OtherProgramsChange(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state, programs := t.TempDir(), t.TempDir()
	change := func(name, from string) {
		t.Helper()
		path := filepath.Join(programs, name)
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(path+".new", data, 0o755)
		}
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change("program", "/bin/sleep")
	change("other", "/bin/true")
	s := servetest.Start(t, program, state)
	ctx := t.Context()
	sb, err := s.Local(t).Create(ctx, crannog.Programs(programs), crannog.Timeout(life))
	if err != nil {
		t.Fatal(err)
	}
	const runs = "pgrep -c -f '^/.crannog/programs'"
	output(t, sb, "/.crannog/programs/1/other; setsid /.crannog/programs/1/program 1000 >/dev/null 2>&1 & "+
		"while ! pgrep -f '^/.crannog/programs' >/dev/null; do sleep 0.02; done")
	change("other", "/bin/false")
	if err := sb.Pause(ctx); err != nil {
		t.Fatalf("pause: %v\n%s", err, s.Stderr())
	}
	change("other", "/bin/echo")
	change("added", "/bin/echo")
	if err := sb.Resume(ctx, 0); err != nil {
		t.Fatalf("resume: %v\n%s", err, s.Stderr())
	}
	forks, err := sb.Fork(ctx, api.CreateFork{Count: 1})
	if err != nil {
		t.Fatalf("fork: %v\n%s", err, s.Stderr())
	}
	for what, box := range map[string]*crannog.Sandbox{"resumed": sb, "copied": forks[0]} {
		if got := output(t, box, runs); got != "1" {
			t.Errorf("%s: %q programs run", what, got)
		}
	}
	change("program", "/bin/true")
	err = sb.Pause(ctx)
	if e, ok := errors.AsType[*crannog.Error](err); !ok || e.Code != "snapshot_programs_changed" || !strings.Contains(e.Message, filepath.Join(programs, "program")) {
		t.Errorf("pause with a program that was replaced: %v", err)
	}
	if got := output(t, sb, runs); got != "1" {
		t.Errorf("after a pause that was refused: %q programs run", got)
	}
	if err := sb.PauseFiles(ctx); err != nil {
		t.Errorf("files alone: %v", err)
	}
	s.Stop(t)
}
