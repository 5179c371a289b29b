package crash_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// P7: without copies of mapped files, an upgrade of the host's programs makes the memory of a
// paused sandbox unusable, but not its files. If a program that the sandbox ran is missing, even
// the files cannot be resumed until it is back.
func TestResumeWithChangedProgramsUsesFiles(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for name, removed := range map[string]bool{"replaced": false, "removed": true} {
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
			if err := removeFiles(filepath.Join(state, "host-files")); err != nil {
				t.Fatal(err)
			}
			current := filepath.Join(programs, "program")
			if err := os.Remove(current); err != nil {
				t.Fatal(err)
			}
			requireRefused := func(err error) {
				t.Helper()
				if e, ok := errors.AsType[*crannog.Error](err); !ok || e.Code != "snapshot_programs_changed" {
					t.Errorf("resume with a changed program: got %v, want snapshot_programs_changed\n%s", err, s.Stderr())
				}
			}
			if removed {
				requireRefused(sb.ResumeFiles(t.Context(), 0))
			}
			if err := os.Rename(filepath.Join(programs, "next"), current); err != nil {
				t.Fatal(err)
			}
			requireRefused(sb.Resume(t.Context(), 0))
			if err := sb.ResumeFiles(t.Context(), 0); err != nil {
				t.Fatalf("resume only the files: %v\n%s", err, s.Stderr())
			}
			if got := output(t, sb, "cat file; pgrep -f '^/.crannog/programs' || echo none"); got != "precious\nnone" {
				t.Errorf("the sandbox resumed from files: got %q", got)
			}
			// The sandbox booted anew, so its memory refers to the new programs.
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

// removeFiles removes all files in a directory.
func removeFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
	}
	return err
}

// F24: a change of the host's programs does not affect a paused sandbox: the server keeps copies of
// the files that its memory refers to.
func TestF24ResumeKeepsMappedPrograms(t *testing.T) {
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
	for what, other := range map[string]*crannog.Sandbox{"resumed": sb, "copied": forks[0]} {
		if got := output(t, other, runs); got != "1" {
			t.Errorf("%s: got %q programs, want 1", what, got)
		}
	}
	// Replace or remove mapped files and kill the server, in either order.
	requireCopies := func(what string) {
		t.Helper()
		current, err := s.Local(t).Get(ctx, sb.ID())
		if err != nil {
			t.Fatal(err)
		}
		h := current.Info().HostFiles
		if h == nil || h.Count == 0 || h.Unkept != 0 || !slices.ContainsFunc(h.Files, func(f api.HostFile) bool { return f.Path == "/.crannog/programs/1/program" && f.Kept }) {
			t.Errorf("%s: the copies of mapped files are %+v", what, h)
		}
	}
	requireResumes := func(what string, lose func()) {
		t.Helper()
		lose()
		if err := sb.Resume(ctx, 0); err != nil {
			t.Fatalf("%s: resume: %v\n%s", what, err, s.Stderr())
		}
		if got := output(t, sb, runs); got != "1" {
			t.Errorf("%s: got %q programs, want 1", what, got)
		}
	}
	serve := func() {
		t.Helper()
		s.Kill()
		s = servetest.Start(t, program, state)
		if sb, err = s.Local(t).Get(ctx, sb.ID()); err != nil {
			t.Fatal(err)
		}
	}
	change("program", "/bin/true")
	if err := sb.Pause(ctx); err != nil {
		t.Fatalf("pause with a program that was replaced: %v\n%s", err, s.Stderr())
	}
	requireCopies("replaced before")
	requireResumes("replaced before", serve)
	if err := sb.Pause(ctx); err != nil {
		t.Fatalf("pause with a copy: %v\n%s", err, s.Stderr())
	}
	requireResumes("removed after", func() {
		if err := os.Remove(filepath.Join(programs, "program")); err != nil {
			t.Fatal(err)
		}
		serve()
	})
	if err := sb.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	requireCopies("removed")
	// Without a copy the memory cannot be restored, and the error names the file.
	copies := filepath.Join(state, "host-files")
	if err := os.Rename(copies, copies+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(copies, 0o700); err != nil {
		t.Fatal(err)
	}
	err = sb.Resume(ctx, 0)
	if e, ok := errors.AsType[*crannog.Error](err); !ok || e.Code != "snapshot_programs_changed" || !strings.Contains(e.Message, filepath.Join(programs, "program")) {
		t.Errorf("resume without the copy: %v", err)
	}
	if err := errors.Join(os.Remove(copies), os.Rename(copies+".away", copies)); err != nil {
		t.Fatal(err)
	}
	requireResumes("with it again", func() {})
	// Unreferenced copies are removed.
	for _, b := range append(forks, sb) {
		if err := b.Kill(ctx); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(copies)
	if err != nil || len(entries) == 0 {
		t.Fatalf("copies: %v, %v", entries, err)
	}
	dayAgo := time.Now().Add(-24 * time.Hour)
	for _, e := range entries {
		if err := os.Chtimes(filepath.Join(copies, e.Name()), dayAgo, dayAgo); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Local(t).Prune(ctx); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(copies); err != nil || len(entries) > 0 {
		t.Errorf("copies after the last sandbox's end: %v, %v", entries, err)
	}
	s.Stop(t)
}
