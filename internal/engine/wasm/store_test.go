package wasm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// tiny is a module with one function that does nothing.
var tiny = []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x07\x0a\x01\x06_start\x00\x00\x0a\x04\x01\x02\x00\x0b")

// testStore returns a store in a temporary directory, with the test binary as its runner.
func testStore(t *testing.T, limit int64) *store {
	t.Helper()
	program := filepath.Join(t.TempDir(), "runner")
	data, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return newStore(filepath.Join(t.TempDir(), "modules"), program, limit, slog.New(slog.NewTextHandler(t.Output(), nil)))
}

// read returns the compiled module in a store.
func read(t *testing.T, s *store, module []byte) []byte {
	t.Helper()
	f, err := s.get(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestStoreCompilesOnce(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s := testStore(t, 0)
	first := read(t, s, tiny)
	if len(first) < 100 {
		t.Fatalf("the compiled module has %d bytes, want at least 100", len(first))
	}
	info, err := os.Stat(s.path(tiny))
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("the stored module is %v, %v; want a file with mode 0600", info, err)
	}
	// With a runner that cannot start, the second request shows that nothing is compiled again.
	if err := os.Remove(s.runner); err != nil {
		t.Fatal(err)
	}
	if again := read(t, s, tiny); !bytes.Equal(first, again) {
		t.Error("the second result differs")
	}
	if _, err := s.get(t.Context(), append(bytes.Clone(tiny), 0, 1, 0)); err == nil { // the control
		t.Error("a different module was not compiled")
	}
}

// An invalid module leaves nothing in the store, and neither does a canceled request.
func TestStoreKeepsNothingAfterFailure(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s := testStore(t, 0)
	if _, err := s.get(t.Context(), []byte("\x00asm\x01\x00\x00\x00\x63\xff")); err == nil {
		t.Error("an invalid module is compiled")
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.get(canceled, tiny); err == nil {
		t.Error("a module is compiled for a canceled request")
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) || len(entries) != 0 || len(s.busy) != 0 {
		t.Errorf("left: %v %v %v", entries, s.busy, err)
	}
}

// The least recently used module is removed first.
func TestStoreEvictsLeastRecentlyUsed(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s := testStore(t, 0)
	other := append(bytes.Clone(tiny), 0, 2, 1, 'x')
	size := int64(len(read(t, s, tiny)))
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(s.path(tiny), old, old); err != nil {
		t.Fatal(err)
	}
	s.limit = size * 3 / 2
	read(t, s, other)
	if _, err := os.Stat(s.path(tiny)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old module: %v", err)
	}
	if _, err := os.Stat(s.path(other)); err != nil {
		t.Errorf("the new module: %v", err)
	}
}

// A guest gets the module that it requests, and no answer to anything else. It may close its
// descriptors at any time.
func TestStoreServesGuests(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s := testStore(t, 0)
	engineEnd, guestEnd := pair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serve(t.Context(), engineEnd)
	}()
	module, err := os.CreateTemp(t.TempDir(), "")
	if err == nil {
		_, err = module.Write(tiny)
	}
	pipe, _, pipeErr := os.Pipe()
	if err := errors.Join(err, pipeErr); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		module *os.File
		answer bool
	}{{module, true}, {pipe, false}, {module, true}} {
		answerEnd, sent := pair(t)
		file, err := sent.File()
		if err != nil {
			t.Fatal(err)
		}
		sent.Close()
		if _, _, err := guestEnd.WriteMsgUnix([]byte{0}, unix.UnixRights(int(c.module.Fd()), int(file.Fd())), nil); err != nil {
			t.Fatal(err)
		}
		file.Close()
		files, err := receive(answerEnd)
		if c.answer != (err == nil && len(files) == 1) {
			t.Errorf("received %v, %v; want an answer: %t", files, err, c.answer)
		}
		closeAll(files)
	}
	if _, err := guestEnd.Write([]byte{0}); err != nil { // without descriptors
		t.Fatal(err)
	}
	guestEnd.Close()
	<-done
}

// pair returns both ends of a socket, as a guest and an engine have them.
func pair(t *testing.T) (*net.UnixConn, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}
