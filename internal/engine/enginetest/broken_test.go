package enginetest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// fakeConfig is the suite's configuration for the fake engine, which fulfils the contract.
func fakeConfig(t testing.TB) *Config {
	return &Config{
		Open:  func(t testing.TB, dir string) engine.Engine { return openFake(t, dir) },
		Image: engine.ViewOf(t.TempDir(), ""), Cycles: 2,
		Residue: func(t testing.TB, dir string) map[string]int {
			n := fake.Residue(dir + "/run")
			n["processes"] = children(t)
			return n
		},
	}
}

// children counts the child processes of this process.
func children(t testing.TB) (n int) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

// openFake opens the fake engine on a state directory.
func openFake(t testing.TB, dir string) *fake.Programs {
	t.Helper()
	e, err := fake.NewPrograms(fake.Options{Dir: dir + "/run"})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// correct is the fake engine. The defective engines below embed it and override some methods.
type correct struct{ *fake.Programs }

type (
	leaksProcess struct {
		correct
		t testing.TB
	}
	leaksDescriptor struct {
		correct
		t testing.TB
	}
	ignoresRemove           struct{ correct }
	returnsFromWaitAtOnce   struct{ correct }
	listsNoSandbox          struct{ correct }
	acceptsInvalidID        struct{ correct }
	acceptsUsedID           struct{ correct }
	acceptsMissingImage     struct{ correct }
	acceptsUndeclaredEgress struct{ correct }
	hidesClosedPort         struct{ correct }
	failsProbe              struct{ correct }
	ignoresFreeze           struct{ correct }
	ignoresThaw             struct{ correct }
	savesFrozenSandbox      struct{ correct }
	archivesWithoutOneFile  struct{ correct }
	archivesNothing         struct{ correct }
	ignoresWriter           struct{ correct }
	restoresAsNewSandbox    struct{ correct }
	savesUndeclaredPart     struct{ correct }
	ignoresReplace          struct{ correct }
	measuresConstantUsage   struct{ correct }
	ignoresEvents           struct{ correct }
	ignoresHide             struct{ correct }
	ignoresReadOnly         struct{ correct }
	changesHostFiles        struct{ correct }
)

func (e leaksProcess) Create(ctx context.Context, spec engine.Spec) error {
	cmd := exec.CommandContext(e.t.Context(), "sleep", "600")
	if err := cmd.Start(); err != nil {
		return err
	}
	e.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return e.correct.Create(ctx, spec)
}

func (e leaksDescriptor) Create(ctx context.Context, spec engine.Spec) error {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	e.t.Cleanup(func() { f.Close() })
	return e.correct.Create(ctx, spec)
}

func (ignoresRemove) Remove(context.Context, string) error { return nil }

func (returnsFromWaitAtOnce) Wait(context.Context, string) (engine.Exit, error) {
	return engine.Exit{Reason: engine.ReasonKilled, At: time.Now()}, nil
}

func (listsNoSandbox) List(context.Context) ([]engine.Status, error) { return nil, nil }

func (e acceptsInvalidID) Create(ctx context.Context, spec engine.Spec) error {
	if err := e.correct.Create(ctx, spec); fault.CodeOf(err) != "id_invalid" {
		return err
	}
	return nil
}

func (e acceptsUsedID) Create(ctx context.Context, spec engine.Spec) error {
	return errors.Join(e.Remove(ctx, spec.ID), e.correct.Create(ctx, spec))
}

func (e acceptsMissingImage) Create(ctx context.Context, spec engine.Spec) error {
	spec.Image = engine.Image{}
	return e.correct.Create(ctx, spec)
}

func (e acceptsUndeclaredEgress) Create(ctx context.Context, spec engine.Spec) error {
	spec.Egress = engine.Egress{}
	return e.correct.Create(ctx, spec)
}

func (e hidesClosedPort) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if port != guestboot.Port {
		return nil, errors.New("no")
	}
	return e.correct.Dial(ctx, id, port)
}

func (failsProbe) Probe(context.Context) []engine.Finding {
	return []engine.Finding{engine.Fail("host", "too old", "get another")}
}

func (ignoresFreeze) Freeze(context.Context, string) error { return nil }
func (ignoresFreeze) Thaw(context.Context, string) error   { return nil }

func (ignoresThaw) Thaw(context.Context, string) error { return nil }

func (e savesFrozenSandbox) Checkpoint(ctx context.Context, id, dir string) error {
	return errors.Join(e.Thaw(ctx, id), e.correct.Checkpoint(ctx, id, dir))
}

func (e savesUndeclaredPart) Checkpoint(ctx context.Context, id, dir string) error {
	return errors.Join(e.correct.Checkpoint(ctx, id, dir), os.WriteFile(filepath.Join(dir, "more"), nil, 0o600))
}

func (e archivesWithoutOneFile) Archive(ctx context.Context, id string, w io.Writer) error {
	var archive bytes.Buffer
	if err := e.correct.Archive(ctx, id, &archive); err != nil {
		return err
	}
	r, out := tar.NewReader(&archive), tar.NewWriter(w)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return err
		}
		if strings.HasSuffix(h.Name, "/f") {
			continue
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, r); err != nil {
			return err
		}
	}
}

func (archivesNothing) Archive(_ context.Context, _ string, w io.Writer) error {
	return tar.NewWriter(w).Close()
}

func (e ignoresWriter) Archive(ctx context.Context, id string, w io.Writer) error {
	var text bytes.Buffer
	if err := e.correct.Archive(ctx, id, &text); err != nil {
		return err
	}
	_, _ = w.Write(text.Bytes())
	return nil
}

func (e restoresAsNewSandbox) Restore(ctx context.Context, spec engine.Spec, _ string) error {
	return e.Create(ctx, spec)
}

func (ignoresReplace) Replace(context.Context, engine.Spec, string) error { return nil }

func (measuresConstantUsage) Usage(context.Context, string) (engine.Usage, error) {
	return engine.Usage{CPUTime: 1, MemoryBytes: 1}, nil
}

func (e ignoresEvents) Create(ctx context.Context, spec engine.Spec) error {
	spec.Events = nil
	return e.correct.Create(ctx, spec)
}

func (e ignoresHide) Create(ctx context.Context, spec engine.Spec) error {
	spec.Hide = nil
	return e.correct.Create(ctx, spec)
}

func (e ignoresReadOnly) Create(ctx context.Context, spec engine.Spec) error {
	spec.ReadOnly = nil
	return e.correct.Create(ctx, spec)
}

// Create also removes a file of the workspace on the host.
func (e changesHostFiles) Create(ctx context.Context, spec engine.Spec) error {
	return errors.Join(e.correct.Create(ctx, spec), os.Remove(filepath.Join(spec.Workspace, "delete")))
}
