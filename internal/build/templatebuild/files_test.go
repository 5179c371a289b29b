package templatebuild

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

var caller = sandbox.Principal{KeyID: "k1"}

// limitedFiles returns a service with small limits, and a function that creates an upload link for
// a digest of one repeated digit.
func limitedFiles(t *testing.T) (*Service, func(digit string) (token, path string)) {
	t.Helper()
	s := &Service{files: openFiles(t.TempDir(), uploadLimits{one: 100, all: 150})}
	return s, func(digit string) (token, path string) {
		path, err := s.files.path(caller, strings.Repeat(digit, 64))
		if err != nil {
			t.Fatal(err)
		}
		return s.files.link(path), path
	}
}

// bytesOf returns a reader of n bytes.
func bytesOf(n int) io.Reader { return strings.NewReader(strings.Repeat("x", n)) }

// usedBytes returns the total size of the files of the caller.
func usedBytes(t *testing.T, s *Service) int64 {
	t.Helper()
	n, err := sizeOf(s.files.owned(caller))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestUploadLimits(t *testing.T) {
	s, link := limitedFiles(t)
	send := func(digit string, n int) error {
		token, _ := link(digit)
		return s.Receive(token, bytesOf(n))
	}
	if err := send("1", 101); fault.CodeOf(err) != "upload_large" || usedBytes(t, s) != 0 {
		t.Errorf("one upload above its limit: got %v, and %d bytes are left, want upload_large and none", err, usedBytes(t, s))
	}
	if err := send("1", 100); err != nil {
		t.Fatal(err)
	}
	if err := send("2", 51); fault.CodeOf(err) != "upload_large" || usedBytes(t, s) != 100 {
		t.Errorf("all uploads above their limit: got %v, and %d bytes are left, want upload_large and 100", err, usedBytes(t, s))
	}
	// Neither a replaced file nor an interrupted upload counts.
	if err := send("1", 50); err != nil {
		t.Fatal(err)
	}
	token, _ := link("3")
	broken := errors.New("the connection is reset")
	if err := s.Receive(token, io.MultiReader(bytesOf(90), failingReader{broken})); !errors.Is(err, broken) || fault.KindOf(err) != fault.Invalid {
		t.Errorf("a broken upload: %v", err)
	}
	if err := send("2", 100); err != nil || usedBytes(t, s) != 150 {
		t.Errorf("uploads up to the limit: got %v, and %d bytes in use, want 150", err, usedBytes(t, s))
	}
	if err := send("3", 1); fault.CodeOf(err) != "upload_large" {
		t.Errorf("upload above the limit: got %v, want upload_large", err)
	}
	// A new process counts the existing files.
	s.files = openFiles(s.files.dir, s.files.limits)
	// An empty upload must not make the process forget them.
	if err := send("4", 0); err != nil {
		t.Fatal(err)
	}
	token, _ = link("3")
	if err := s.Receive(token, bytesOf(1)); fault.CodeOf(err) != "upload_large" {
		t.Errorf("upload above the limit after a restart: got %v, want upload_large", err)
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// Concurrent uploads of one caller share one limit.
func TestConcurrentUploadsShareLimit(t *testing.T) {
	s, link := limitedFiles(t)
	first, path := link("1")
	second, _ := link("2")
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.Receive(first, r) }()
	// Once the last byte is read from the pipe, the bytes before it are stored.
	for _, n := range []int{89, 1} {
		if _, err := io.Copy(w, bytesOf(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Receive(second, bytesOf(90)); fault.CodeOf(err) != "upload_large" {
		t.Errorf("second upload: got %v, want upload_large", err)
	}
	if err := errors.Join(w.Close(), <-done); err != nil {
		t.Errorf("first upload: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 90 || usedBytes(t, s) != 90 {
		t.Errorf("first upload: got file %+v, error %v, and %d bytes in use", info, err, usedBytes(t, s))
	}
}

// A token is valid once, and callers have separate files for the same hash.
func TestUploadsAreSeparatedByCaller(t *testing.T) {
	s, link := limitedFiles(t)
	token, path := link("1")
	if err := s.Receive(token, bytesOf(1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Receive(token, bytesOf(1)); fault.CodeOf(err) != "upload_not_found" {
		t.Errorf("second use of a token: got %v, want upload_not_found", err)
	}
	other, err := s.files.path(sandbox.Principal{KeyID: "k2"}, filepath.Base(path))
	if err != nil || other == path {
		t.Errorf("path of another caller: got %s, error %v, want a path of its own", other, err)
	}
	if _, err := s.files.path(caller, "../"+strings.Repeat("1", 61)); fault.CodeOf(err) != "files_hash_invalid" {
		t.Errorf("path of a hash that is a path: got %v, want files_hash_invalid", err)
	}
}
