package jail

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// The guest's view of its files must be a read-only tmpfs, because a compromised guest could offer
// another directory.
func TestArchiveReadsOnlyTheView(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	self, err := process.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	check := func(path string) error {
		view, err := os.OpenRoot(path)
		if err != nil {
			t.Fatal(err)
		}
		defer view.Close()
		return (&instance{rec: record{Init: self}}).checkView(view)
	}
	tmpfs := t.TempDir()
	mount := func(flags uintptr) {
		if err := unix.Mount("tmpfs", tmpfs, "tmpfs", flags, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(tmpfs, 0); err != nil {
				t.Error(err)
			}
		})
	}
	mount(unix.MS_RDONLY)
	if err := check(tmpfs); err != nil {
		t.Errorf("a read-only tmpfs is refused: %v", err)
	}
	mount(0)
	if check(tmpfs) == nil {
		t.Error("a writable tmpfs is accepted")
	}
	for _, path := range []string{"/proc", "/sys", filepath.Dir(must(os.Executable()))} {
		if check(path) == nil {
			t.Errorf("%s is accepted", path)
		}
	}
}

func must(path string, err error) string {
	if err != nil {
		panic(err)
	}
	return path
}
