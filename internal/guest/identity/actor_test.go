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

// otherUser is a user that owns no files.
var otherUser = identity.User{Name: "other", UID: 54321, GID: 54322, Groups: []uint32{54323}}

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

func TestDoSwitchesUser(t *testing.T) {
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
	err = a.Do(otherUser, func() error {
		status, err := threadStatus("Uid", "Gid", "Groups", "CapEff")
		if err != nil {
			return err
		}
		if want := "0 54321 0 54321; 0 54322 0 54322; 54323; 0000000000000000"; status != want {
			t.Errorf("status of the thread: got %s, want %s", status, want)
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
		t.Errorf("owner of the new file: got %+v, %v, want 54321:54322", info, err)
	}
}

// F11: file permissions cannot be bypassed by the user, neither in the guest's work nor in a
// process.
func TestF11PermissionsApplyToUser(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir := t.TempDir()
	rootFile, userFile := filepath.Join(dir, "root"), filepath.Join(dir, "user")
	for _, path := range []string{rootFile, userFile} {
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
	if err := os.Chown(userFile, int(otherUser.UID), int(otherUser.GID)); err != nil {
		t.Fatal(err)
	}
	a := identity.Actor{Switch: true}
	for path, ok := range map[string]bool{rootFile: false, userFile: true} {
		if err := a.Do(otherUser, func() error { _, err := os.ReadFile(path); return err }); (err == nil) != ok {
			t.Errorf("%s read by Do: %v", path, err)
		}
		pid, err := syscall.ForkExec("/bin/cat", []string{"cat", path}, &syscall.ProcAttr{Sys: a.Attr(otherUser), Files: []uintptr{0, 1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || (status.ExitStatus() == 0) != ok {
			t.Errorf("%s read by a process: %v %v", path, status, err)
		}
	}
}

// After Do, no thread has the rights of the user. Do returns errors and passes panics on.
func TestDoRestoresThreads(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	a := identity.Actor{Switch: true}
	var workers sync.WaitGroup
	for i := range 32 {
		workers.Go(func() {
			for range 50 {
				want := fmt.Errorf("mine %d", i)
				if err := a.Do(otherUser, func() error { return want }); !errors.Is(err, want) {
					t.Errorf("error of Do: got %v, want %v", err, want)
				}
			}
		})
	}
	workers.Wait()
	func() {
		defer func() {
			if got := recover(); got != "oops" {
				t.Errorf("panic in Do: got %v, want oops", got)
			}
		}()
		_ = a.Do(otherUser, func() error { panic("oops") })
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
			t.Errorf("thread %s still has the rights of the other user", name)
		}
	}
}
