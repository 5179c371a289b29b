package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/audited"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/state/retained"
	"github.com/crannog/crannog/internal/state/workspace"
	"github.com/crannog/crannog/internal/store"
)

// crashMode selects when the process dies: while it retains the changes of a run and ends the
// sandbox, or while it discards the changes. The value ends with the level of the sandbox.
const (
	crashMode       = "CRANNOG_TEST_CRASH_OF"
	crashRetaining  = "keeping "
	crashDiscarding = "throwing "
)

// retainedStores returns the option with the stores that a Service needs to retain changes of runs,
// and the store of recordings.
func retainedStores(dir string, step func(string)) (option, *recording.Store) {
	changes := retained.New(filepath.Join(dir, "changes"))
	changes.Step = step
	recordings := recording.New(recording.Options{Dir: filepath.Join(dir, "recordings"), Step: step})
	return func(d *lifecycle.Deps) {
		d.Retained, d.Recordings, d.Journals = changes, recordings, filepath.Join(dir, "applies")
		d.Manifests, d.Copies = workspace.NewManifests(filepath.Join(dir, "manifests")), workspace.New(filepath.Join(dir, "workspaces"))
	}, recordings
}

// commandOutput is the output of the run's command.
const commandOutput = "output of the command"

// retainAndDiscard creates a sandbox, and then retains and discards its data as crannog run does.
func retainAndDiscard(dir, what string) error {
	n, err := strconv.Atoi(os.Getenv(crashAt))
	if err != nil {
		return err
	}
	level, throws := strings.CutPrefix(what, crashDiscarding)
	level, keeps := strings.CutPrefix(level, crashRetaining)
	b := &crashCounter{left: -1}
	ctx := context.Background()
	st, err := store.Open(ctx, dir)
	if err != nil {
		return err
	}
	eng, err := fake.New(fake.Options{
		Dir: filepath.Join(dir, "run"), Enforces: enforced, Fault: func(fake.Step, string) error { b.tick(); return nil },
		Guest: func(spec engine.Spec) (map[int]http.Handler, func(), error) {
			mux := http.NewServeMux()
			mux.Handle("/", fake.Control(spec, nil))
			for _, path := range []string{guest.PathTree, guest.PathPack} {
				mux.Handle(path, guestFiles(filepath.Join(dir, "inside")))
			}
			return map[int]http.Handler{guestboot.Port: mux}, nil, nil
		},
	})
	if err != nil {
		return err
	}
	with, recordings := retainedStores(dir, func(string) { b.tick() })
	deps := lifecycle.Deps{
		Store: crashingStore{st, b}, Engines: fake.Registry(eng), Templates: templates{}, Log: slog.New(slog.DiscardHandler),
		Audit: auditlog.New(&audittest.Log{}, slog.New(slog.DiscardHandler)), Settings: sandbox.Settings{AnyBoundary: true},
	}
	with(&deps)
	s, err := audited.NewService(deps)
	if err != nil {
		return err
	}
	sb, err := s.Create(ctx, local, sandbox.CreateRequest{
		Template: "base", Workspace: filepath.Join(dir, "host"), Ephemeral: true, Access: sandbox.Access{Level: level},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "inside", "new.txt"), []byte("new\n"), 0o644); err != nil {
		return err
	}
	output, err := recordings.Begin(sb.ID, recording.Head{How: "start", Command: []string{"x"}, Started: time.Now()})
	if err != nil {
		return err
	}
	output.Output(1, []byte(commandOutput))
	if err := output.End(recording.Tail{Ended: time.Now()}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "id"), []byte(sb.ID), 0o600); err != nil {
		return err
	}
	if keeps {
		b.left = n
	}
	k, err := s.Changes().KeepChanges(ctx, local, sb.ID)
	if err != nil || k.Files != 1 {
		return fmt.Errorf("%+v %w", k, err)
	}
	// Retain a second time, which replaces the first.
	if _, err = s.Changes().KeepChanges(ctx, local, sb.ID); err != nil {
		return err
	}
	r, err := s.Recordings().KeepRecordings(ctx, local, sb.ID)
	if err != nil || r.ID != sb.ID {
		return fmt.Errorf("%+v %w", r, err)
	}
	if err := s.Forget(ctx, local, sb.ID); err != nil {
		return err
	}
	if throws {
		b.left = n
		err = s.Changes().DiscardChanges(ctx, local, sb.ID)
	}
	return errors.Join(err, s.Close(ctx), recordings.Close(), st.Close())
}

// The retained data of a run is complete or absent, whenever the process dies that retains or
// discards it. The next start removes everything that belongs to neither state.
func TestCrashWhileRetaining(t *testing.T) {
	for _, what := range []string{crashRetaining + "strict", crashRetaining + "standard", crashDiscarding + "strict", crashDiscarding + "standard"} {
		t.Run(what, func(t *testing.T) {
			outcomes := map[string]int{}
			const tooMany, fewest = 100, 3
			for n := 1; ; n++ {
				if n == tooMany {
					t.Fatalf("the child still dies at step %d", n)
				}
				dir := t.TempDir()
				for _, name := range []string{"host", "inside"} {
					write(t, filepath.Join(dir, name), "same.txt", "same\n")
				}
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), crashDir+"="+dir, crashAt+"="+strconv.Itoa(n), crashMode+"="+what)
				out, err := cmd.CombinedOutput()
				outcome := checkRetainedData(t, dir)
				if t.Failed() {
					t.Fatalf("at step %d: %s", n, outcome)
				}
				outcomes[outcome]++
				if err == nil {
					if n <= fewest {
						t.Errorf("the child survived %d steps; its crash points are not reached", n)
					}
					break
				}
				status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
				if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
					t.Fatalf("step %d: %v\n%s", n, err, out)
				}
			}
			t.Log(outcomes)
			// Control: there are kills before and after the deciding step.
			if outcomes["all"] == 0 || outcomes["nothing"] == 0 {
				t.Errorf("outcomes: got %v, want all and nothing, each at least once", outcomes)
			}
		})
	}
}

// checkRetainedData starts a new Service and checks what a user finds after the crash.
func checkRetainedData(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "id"))
	if err != nil {
		t.Fatal(err)
	}
	id := string(text)
	r := &rig{t: t, dir: dir, ends: map[string]time.Time{}}
	with, recordings := retainedStores(dir, nil)
	r.open(with)
	defer r.engine.Close()
	defer r.close()
	report := r.reconcile()
	r.wantNothingLeft()
	if _, err := r.Get(t.Context(), local, id); err == nil {
		t.Errorf("the sandbox still exists: %+v", report)
	}
	left := func(name string) []string {
		entries, err := os.ReadDir(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		var names []string
		for _, e := range entries {
			if e.IsDir() || name != "recordings" { // they have a checksum file beside them
				names = append(names, e.Name())
			}
		}
		return names
	}
	outcome := []string{}
	changed := left("changes")
	// Under strict they are compared with a copy, otherwise with a list.
	if compared := append(left("manifests"), left("workspaces")...); !slices.Equal(compared, changed) {
		t.Errorf("earlier states of %q, want those of the retained changes %q", compared, changed)
	}
	if len(changed) > 0 {
		outcome = append(outcome, "changes")
		set, err := r.Changes().Changes(t.Context(), local, id, sandbox.ChangesRequest{Text: true})
		if err != nil || !slices.Equal(changed, []string{id}) || len(set.Changes) != 1 || !strings.Contains(set.Changes[0].Text, "+new") {
			t.Errorf("retained changes of %q: got %+v, %v", changed, set.Changes, err)
		}
	}
	found, err := r.Recordings().Recorded(t.Context(), local, id)
	if _, aliceErr := r.Recordings().Recorded(t.Context(), alice, id); aliceErr == nil {
		t.Error("another key finds the recordings")
	}
	switch kept := left("recordings"); {
	case err == nil && found == id:
		outcome = append(outcome, "recordings")
		f, err := recordings.Open(id, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if text, err := io.ReadAll(f); err != nil || !strings.Contains(string(text), commandOutput) {
			t.Errorf("recording: got %q, %v; want the command's output", text, err)
		}
	case len(kept) > 0:
		t.Errorf("recordings that no row refers to: %q", kept)
	}
	switch len(outcome) {
	case 0:
		return "nothing"
	case 2:
		return "all"
	}
	return outcome[0]
}
