package crash_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// buildVariant writes a changed copy of the program, which stands for another build.
func buildVariant(t *testing.T, alter func([]byte) []byte) string {
	t.Helper()
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "crannog-altered")
	if err := os.WriteFile(name, alter(data), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// otherGVisor returns the program with another version of gVisor in its module list.
func otherGVisor(t *testing.T) string {
	t.Helper()
	return buildVariant(t, func(data []byte) []byte {
		found := regexp.MustCompile(`dep\tgvisor\.dev/gvisor\tv[^\t]*`).FindAllIndex(data, -1)
		if len(found) == 0 {
			t.Fatal("the program's module list lacks gVisor")
		}
		for _, at := range found {
			last := &data[at[1]-1]
			*last = '0' + (*last-'0'+1)%10
		}
		return data
	})
}

// P7: memory that another version of gVisor saved is refused but not lost; files resume with any
// version.
func TestOtherGVisorRefusesMemory(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	state := t.TempDir()
	first := servetest.Start(t, program, state)
	client := first.Client(t)
	var paused [2]string
	for i := range paused {
		sb, err := client.Create(t.Context(), crannog.Timeout(life))
		if err != nil {
			t.Fatal(err)
		}
		paused[i] = sb.ID()
		startCounter(t, sb, 42)
	}
	sb, err := client.Get(t.Context(), paused[0])
	if err != nil {
		t.Fatal(err)
	}
	withMemory, err := sb.Snapshot(t.Context(), api.CreateSnapshot{})
	if err != nil {
		t.Fatal(err)
	}
	files, err := sb.Snapshot(t.Context(), api.CreateSnapshot{FilesOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sb, err = client.Get(t.Context(), paused[1]); err == nil {
		err = sb.PauseFiles(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	first.Stop(t)

	second := servetest.Start(t, otherGVisor(t), state)
	client = second.Client(t)
	requireRefused := func(what string, err error) {
		t.Helper()
		if e, ok := errors.AsType[*crannog.Error](err); !ok || e.Code != "snapshot_format" {
			t.Errorf("%s: got %v, want snapshot_format", what, err)
		}
	}
	_, err = client.Create(t.Context(), crannog.Template(withMemory.ID))
	requireRefused("a new sandbox from a snapshot", err)
	if sb, err = client.Get(t.Context(), paused[0]); err != nil {
		t.Fatal(err)
	}
	requireRefused("resume", sb.Resume(t.Context(), life))
	// The state with memory also contains the sandbox's files.
	requireRefused("resume of its files", sb.ResumeFiles(t.Context(), life))
	fromFiles, err := client.Create(t.Context(), crannog.Template(files.ID))
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, fromFiles, "ls /home/user"); got != "keep.py" {
		t.Errorf("the snapshot of files: got %q", got)
	}
	booted, err := client.Get(t.Context(), paused[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := booted.Resume(t.Context(), life); err != nil {
		t.Fatal(err)
	}
	if got := output(t, booted, "ls /home/user; pgrep -f '^python3 keep' || echo none"); got != "keep.py\nnone" {
		t.Errorf("a sandbox that was paused without memory: got %q", got)
	}
	second.Stop(t)

	// The refused state still resumes with the version that saved it.
	third := servetest.Start(t, program, state)
	if sb, err = third.Client(t).Get(t.Context(), paused[0]); err != nil {
		t.Fatal(err)
	}
	if err := sb.Resume(t.Context(), life); err != nil {
		t.Fatal(err)
	}
	if got := readCounter(t, sb); got != "42" {
		t.Errorf("the program's number: got %q, want 42", got)
	}
	third.Stop(t)
}

// P7: a sandbox that was paused by one build of the program resumes with another.
func TestPausedSandboxResumesAfterUpgrade(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	state := t.TempDir()
	first := servetest.Start(t, program, state)
	sb, err := first.Client(t).Create(t.Context(), crannog.Timeout(life))
	if err != nil {
		t.Fatal(err)
	}
	startCounter(t, sb, 42)
	if err := sb.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Stop(t)
	second := servetest.Start(t, buildVariant(t, func(data []byte) []byte { return append(data, 0) }), state)
	if sb, err = second.Client(t).Get(t.Context(), sb.ID()); err != nil {
		t.Fatal(err)
	}
	if err := sb.Resume(t.Context(), life); err != nil {
		t.Fatalf("resume with another build: %v\n%s", err, second.Stderr())
	}
	if got := readCounter(t, sb); got != "42" {
		t.Errorf("the program's number: got %q, want 42", got)
	}
	if err := sb.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	second.Stop(t)
	servetest.NothingLeft(t, state)
	if strings.Contains(second.Stderr(), "panic") {
		t.Error(second.Stderr())
	}
}
