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

// altered is another build of the program.
func altered(t *testing.T, alter func([]byte) []byte) string {
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

// otherGVisor is the program with another version of gVisor in its module list.
func otherGVisor(t *testing.T) string {
	t.Helper()
	return altered(t, func(data []byte) []byte {
		found := regexp.MustCompile(`dep\tgvisor\.dev/gvisor\tv[^\t]*`).FindAllIndex(data, -1)
		if len(found) == 0 {
			t.Fatal("the program does not say which gVisor it links")
		}
		for _, at := range found {
			last := &data[at[1]-1]
			*last = '0' + (*last-'0'+1)%10
		}
		return data
	})
}

// P7: memory that another version of gVisor saved is refused, and not lost; files start with any
// version.
func TestAcrossAnotherGVisor(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	state := t.TempDir()
	first := servetest.Start(t, program, state)
	client := first.Client(t)
	var saved [2]string
	for i := range saved {
		sb, err := client.Create(t.Context(), crannog.Timeout(life))
		if err != nil {
			t.Fatal(err)
		}
		saved[i] = sb.ID()
		remember(t, sb, 42)
	}
	sb, err := client.Get(t.Context(), saved[0])
	if err != nil {
		t.Fatal(err)
	}
	whole, err := sb.Snapshot(t.Context(), api.CreateSnapshot{})
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
	if sb, err = client.Get(t.Context(), saved[1]); err == nil {
		err = sb.PauseFiles(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	first.Stop(t)

	second := servetest.Start(t, otherGVisor(t), state)
	client = second.Client(t)
	refused := func(what string, err error) {
		t.Helper()
		if e, ok := errors.AsType[*crannog.Error](err); !ok || e.Code != "snapshot_format" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = client.Create(t.Context(), crannog.Template(whole.ID))
	refused("a new sandbox from a snapshot", err)
	if sb, err = client.Get(t.Context(), saved[0]); err != nil {
		t.Fatal(err)
	}
	refused("resume", sb.Resume(t.Context(), life))
	// A state with memory includes files.
	refused("resume of its files", sb.ResumeFiles(t.Context(), life))
	fresh, err := client.Create(t.Context(), crannog.Template(files.ID))
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, fresh, "ls /home/user"); got != "keep.py" {
		t.Errorf("the snapshot of files holds %q", got)
	}
	booted, err := client.Get(t.Context(), saved[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := booted.Resume(t.Context(), life); err != nil {
		t.Fatal(err)
	}
	if got := output(t, booted, "ls /home/user; pgrep -f '^python3 keep' || echo none"); got != "keep.py\nnone" {
		t.Errorf("paused without memory: %q", got)
	}
	second.Stop(t)

	// The refused state resumes with the version that saved it.
	third := servetest.Start(t, program, state)
	if sb, err = third.Client(t).Get(t.Context(), saved[0]); err != nil {
		t.Fatal(err)
	}
	if err := sb.Resume(t.Context(), life); err != nil {
		t.Fatal(err)
	}
	if got := recall(t, sb); got != "42" {
		t.Errorf("the program remembers %q", got)
	}
	third.Stop(t)
}

// P7: a sandbox that was paused by one build of the program resumes with another.
func TestPausedAcrossAnUpgrade(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	state := t.TempDir()
	first := servetest.Start(t, program, state)
	sb, err := first.Client(t).Create(t.Context(), crannog.Timeout(life))
	if err != nil {
		t.Fatal(err)
	}
	remember(t, sb, 42)
	if err := sb.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Stop(t)
	second := servetest.Start(t, altered(t, func(data []byte) []byte { return append(data, 0) }), state)
	if sb, err = second.Client(t).Get(t.Context(), sb.ID()); err != nil {
		t.Fatal(err)
	}
	if err := sb.Resume(t.Context(), life); err != nil {
		t.Fatalf("%v\n%s", err, second.Stderr())
	}
	if got := recall(t, sb); got != "42" {
		t.Errorf("the program remembers %q", got)
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
