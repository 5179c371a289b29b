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

// sound is the suite's configuration for the fake, which fulfils the contract.
func sound(t testing.TB) *Config {
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
			continue // it has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

func openFake(t testing.TB, dir string) *fake.Programs {
	t.Helper()
	e, err := fake.NewPrograms(fake.Options{Dir: dir + "/run"})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// like is the fake with one or more methods replaced.
type like struct{ *fake.Programs }

type (
	leaksProcess struct {
		like
		t testing.TB
	}
	leaksDescriptor struct {
		like
		t testing.TB
	}
	removesNothing   struct{ like }
	waitsNot         struct{ like }
	listsNothing     struct{ like }
	takesAnyID       struct{ like }
	takesTakenID     struct{ like }
	takesAnyRoot     struct{ like }
	takesAnyEgress   struct{ like }
	dialsVaguely     struct{ like }
	passesNoProbe    struct{ like }
	freezesNot       struct{ like }
	thawsNot         struct{ like }
	savesFrozen      struct{ like }
	dropsAFile       struct{ like }
	archivesNothing  struct{ like }
	restoresAnew     struct{ like }
	savesMore        struct{ like }
	replacesNothing  struct{ like }
	measuresConstant struct{ like }
	observesNothing  struct{ like }
	showsHidden      struct{ like }
	writesReadOnly   struct{ like }
	writesTheHost    struct{ like }
)

func (e leaksProcess) Create(ctx context.Context, spec engine.Spec) error {
	cmd := exec.CommandContext(e.t.Context(), "sleep", "600")
	if err := cmd.Start(); err != nil {
		return err
	}
	e.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return e.like.Create(ctx, spec)
}

func (e leaksDescriptor) Create(ctx context.Context, spec engine.Spec) error {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	e.t.Cleanup(func() { f.Close() })
	return e.like.Create(ctx, spec)
}

func (removesNothing) Remove(context.Context, string) error { return nil }

func (waitsNot) Wait(context.Context, string) (engine.Exit, error) {
	return engine.Exit{Reason: engine.ReasonKilled, At: time.Now()}, nil
}

func (listsNothing) List(context.Context) ([]engine.Status, error) { return nil, nil }

func (e takesAnyID) Create(ctx context.Context, spec engine.Spec) error {
	if err := e.like.Create(ctx, spec); fault.CodeOf(err) != "id_invalid" {
		return err
	}
	return nil
}

func (e takesTakenID) Create(ctx context.Context, spec engine.Spec) error {
	return errors.Join(e.Remove(ctx, spec.ID), e.like.Create(ctx, spec))
}

func (e takesAnyRoot) Create(ctx context.Context, spec engine.Spec) error {
	spec.Image = engine.Image{}
	return e.like.Create(ctx, spec)
}

func (e takesAnyEgress) Create(ctx context.Context, spec engine.Spec) error {
	spec.Egress = engine.Egress{}
	return e.like.Create(ctx, spec)
}

func (e dialsVaguely) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if port != guestboot.Port {
		return nil, errors.New("no")
	}
	return e.like.Dial(ctx, id, port)
}

func (passesNoProbe) Probe(context.Context) []engine.Finding {
	return []engine.Finding{engine.Fail("host", "too old", "get another")}
}

func (freezesNot) Freeze(context.Context, string) error { return nil }
func (freezesNot) Thaw(context.Context, string) error   { return nil }

func (thawsNot) Thaw(context.Context, string) error { return nil }

func (e savesFrozen) Checkpoint(ctx context.Context, id, dir string) error {
	return errors.Join(e.Thaw(ctx, id), e.like.Checkpoint(ctx, id, dir))
}

func (e savesMore) Checkpoint(ctx context.Context, id, dir string) error {
	return errors.Join(e.like.Checkpoint(ctx, id, dir), os.WriteFile(filepath.Join(dir, "more"), nil, 0o600))
}

func (e dropsAFile) Archive(ctx context.Context, id string, w io.Writer) error {
	var whole bytes.Buffer
	if err := e.like.Archive(ctx, id, &whole); err != nil {
		return err
	}
	r, out := tar.NewReader(&whole), tar.NewWriter(w)
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

func (e restoresAnew) Restore(ctx context.Context, spec engine.Spec, _ string) error {
	return e.Create(ctx, spec)
}

func (replacesNothing) Replace(context.Context, engine.Spec, string) error { return nil }

func (measuresConstant) Usage(context.Context, string) (engine.Usage, error) {
	return engine.Usage{CPUTime: 1, MemoryBytes: 1}, nil
}

func (e observesNothing) Create(ctx context.Context, spec engine.Spec) error {
	spec.Events = nil
	return e.like.Create(ctx, spec)
}

func (e showsHidden) Create(ctx context.Context, spec engine.Spec) error {
	spec.Hide = nil
	return e.like.Create(ctx, spec)
}

func (e writesReadOnly) Create(ctx context.Context, spec engine.Spec) error {
	spec.ReadOnly = nil
	return e.like.Create(ctx, spec)
}

// Create also removes a file on the host that the sandbox should remove in its own view only.
func (e writesTheHost) Create(ctx context.Context, spec engine.Spec) error {
	return errors.Join(e.like.Create(ctx, spec), os.Remove(filepath.Join(spec.Workspace, "delete")))
}
