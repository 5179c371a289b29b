package identity_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// stranger is a user that owns nothing.
var stranger = identity.User{Name: "stranger", UID: 54321, GID: 54322, Groups: []uint32{54323}}

// threadStatus returns fields of the calling thread's status.
func threadStatus(fields ...string) (string, error) {
	data, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return "", err
	}
	var got []string
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		for _, f := range fields {
			if f == name {
				got = append(got, strings.Join(strings.Fields(value), " "))
			}
		}
	}
	return strings.Join(got, "; "), nil
}

func TestDoSwitches(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir, err := os.MkdirTemp("/tmp", "actor-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := identity.Actor{Switch: true}
	err = a.Do(stranger, func() error {
		status, err := threadStatus("Uid", "Gid", "Groups", "CapEff")
		if err != nil {
			return err
		}
		if want := "0 54321 0 54321; 0 54322 0 54322; 54323; 0000000000000000"; status != want {
			t.Errorf("inside: %s, want %s", status, want)
		}
		if _, err := os.ReadFile(secret); !errors.Is(err, os.ErrPermission) {
			t.Errorf("reading root's file: %v", err)
		}
		return os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "mine"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 54321 || info.Sys().(*syscall.Stat_t).Gid != 54322 {
		t.Errorf("owner: %+v %v", info, err)
	}
}

// F11: file permissions cannot be bypassed by the user, neither in the guest's work nor in a
// process.
func TestF11NoWayPastPermissions(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir := t.TempDir()
	locked, own := filepath.Join(dir, "locked"), filepath.Join(dir, "own")
	for _, path := range []string{locked, own} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(path), 0o711); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(filepath.Dir(path)), 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(own, int(stranger.UID), int(stranger.GID)); err != nil {
		t.Fatal(err)
	}
	a := identity.Actor{Switch: true}
	for path, ok := range map[string]bool{locked: false, own: true} {
		if err := a.Do(stranger, func() error { _, err := os.ReadFile(path); return err }); (err == nil) != ok {
			t.Errorf("%s for work: %v", path, err)
		}
		pid, err := syscall.ForkExec("/bin/cat", []string{"cat", path}, &syscall.ProcAttr{Sys: a.Attr(stranger), Files: []uintptr{0, 1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || (status.ExitStatus() == 0) != ok {
			t.Errorf("%s for a process: %v %v", path, status, err)
		}
	}
}

// No thread may keep a user's rights, and errors and panics are passed on.
func TestDoRestores(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	a := identity.Actor{Switch: true}
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			for range 50 {
				want := fmt.Errorf("mine %d", i)
				if err := a.Do(stranger, func() error { return want }); !errors.Is(err, want) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	all.Wait()
	func() {
		defer func() {
			if got := recover(); got != "oops" {
				t.Errorf("panic became %v", got)
			}
		}()
		_ = a.Do(stranger, func() error { panic("oops") })
	}()
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	for _, name := range threads {
		data, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), "Uid:\t0\t0\t0\t0\n") || strings.Contains(string(data), "54323") {
			t.Errorf("%s is still a stranger's", name)
		}
	}
}
