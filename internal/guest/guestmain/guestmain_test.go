package guestmain

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestProgramsGetHostNameAndNoGuestDescriptors(t *testing.T) {
	r := boot(t, config())
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := r.shell(`test $(uname -n) = inside && test $$ -gt 1 && exit 7`); !strings.Contains(got, `"exit status 7"`) {
		t.Errorf("shell that checks its host name and PID: got %q, want exit status 7", got)
	}
	if now, err := os.Hostname(); err != nil || now != host {
		t.Errorf("the host name outside changed to %q", now)
	}
	if code, _ := r.call("GET", guest.PathReady, "", guest.ControlHeader, "control"); code != 204 {
		t.Errorf("ready: got status %d, want 204", code)
	}
	// Programs inherit no descriptor of the guest except the standard streams.
	if got := r.shell(`set -- /proc/self/fd/*; exit $#`); !strings.Contains(got, `"exit status 4"`) {
		t.Errorf("descriptors of a program: got %q, want exit status 4", got) // 0, 1, 2 and that of the listed directory
	}
}

func TestGuestReapsOrphans(t *testing.T) {
	r := boot(t, config())
	if got := r.shell(`i=0; while [ $i -lt 1000 ]; do (true &); i=$((i+1)); done; exit 9`); !strings.Contains(got, `"exit status 9"`) {
		t.Fatalf("shell that leaves 1,000 orphans: got %q, want exit status 9", got)
	}
	hosttest.EventuallyAtMost(t, "children", 0, func() int { return len(childrenOf(r.cmd.Process.Pid)) })
}

// childrenOf returns the stat lines of the children of a process.
func childrenOf(pid int) []string {
	var found []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // the process has ended
		}
		_, rest, _ := strings.Cut(string(data), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == fmt.Sprint(pid) {
			found = append(found, string(data))
		}
	}
	return found
}

func TestSignalsDoNotEndGuest(t *testing.T) {
	r := boot(t, config())
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1} {
		if err := r.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.shell(`kill -TERM 1; kill -INT 1; trap '' TERM; kill -TERM $$; exit 5`); !strings.Contains(got, `"exit status 5"`) {
		t.Errorf("shell that signals PID 1: got %q, want exit status 5", got)
	}
	// Signals that the guest ignores must not be ignored by its children.
	if got := r.shell(`kill -PIPE $$; exit 5`); !strings.Contains(got, `"signal: broken pipe"`) {
		t.Errorf("a child process ignores SIGPIPE: %q", got)
	}
}

func TestEndAtEndsGuest(t *testing.T) {
	cfg := config()
	cfg.EndAt = time.Now().Add(time.Hour)
	r := boot(t, cfg)
	if code, body := r.call("POST", guest.PathUpdate, `{"end_at":"2020-01-01T00:00:00Z"}`, guest.ControlHeader, "control"); code != 204 {
		t.Fatalf("update: got %d %s, want 204", code, body)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("the guest ended with %v, want success", err)
	}
}

func TestCreateDirSetsModeOfNewDirectoryOnly(t *testing.T) {
	dir := t.TempDir()
	created := filepath.Join(dir, "a/b")
	for range 2 {
		if err := createDir(created, 0o777|os.ModeSticky); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(created); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("mode of the new directory: got %v, %v, want sticky and 0777", info.Mode(), err)
	}
	if err := os.Chmod(created, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := createDir(created, 0o755); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(created); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the existing directory: got %v %v, want 0700", info.Mode(), err)
	}
}

func TestChangeOwnerOfDirectoryOnly(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	user := identity.User{Name: "u", UID: 54321, GID: 54322}
	owner := func(path string) uint32 {
		t.Helper()
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Uid
	}
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, link, "/nonexistent", ""} {
		if err := changeOwner(path, user); err != nil {
			t.Errorf("changeOwner of %q: %v", path, err)
		}
	}
	if owner(dir) != 54321 || owner("/etc") != 0 || owner(link) != 0 {
		t.Errorf("owners of directory, link target and link: got %d, %d, %d, want 54321, 0, 0", owner(dir), owner("/etc"), owner(link))
	}
}
