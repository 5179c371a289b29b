package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/fault"
)

// open opens an empty store.
func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func digestOf(text string) v1.Hash {
	sum := sha256.Sum256([]byte(text))
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}

// begin begins the draft of a blob.
func begin(t *testing.T, s *Store, text string) *Draft {
	t.Helper()
	d, err := s.Begin(t.Context(), digestOf(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	if d == nil {
		t.Fatalf("the store has %q already", text)
	}
	return d
}

func write(t *testing.T, d *Draft, text string) {
	t.Helper()
	if _, err := io.WriteString(d, text); err != nil {
		t.Fatal(err)
	}
}

func TestDraftIsContinuedAndCommitted(t *testing.T) {
	s := open(t)
	const text = "hello, layer"
	d := begin(t, s, text)
	write(t, d, text[:5])
	if _, ok := s.Size(digestOf(text)); ok {
		t.Error("an incomplete draft is a blob")
	}
	d.Close()
	d = begin(t, s, text)
	if d.At() != 5 {
		t.Fatalf("continued draft: got offset %d, want 5", d.At())
	}
	write(t, d, text[5:])
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	got, err := s.Read(digestOf(text), 100)
	if err != nil || string(got) != text {
		t.Errorf("Read of the committed blob: got %q, error %v, want %q", got, err, text)
	}
	if again, err := s.Begin(t.Context(), digestOf(text), int64(len(text))); again != nil || err != nil {
		t.Errorf("an existing blob is written again: %v %v", again, err)
	}
	if left, _ := os.ReadDir(s.drafts); len(left) != 0 {
		t.Errorf("drafts left after Commit: %v", left)
	}
}

func TestCommitRejectsWrongContent(t *testing.T) {
	for name, c := range map[string]struct{ want, sent string }{
		"other bytes": {"right", "wrong"}, "too short": {"right", "rig"},
	} {
		s := open(t)
		d := begin(t, s, c.want)
		write(t, d, c.sent)
		if err := d.Commit(); fault.CodeOf(err) != CodeWrong {
			t.Errorf("%s: Commit: error %v", name, err)
		}
		if _, ok := s.Size(digestOf(c.want)); ok {
			t.Errorf("%s: wrong content became a blob", name)
		}
		if d := begin(t, s, c.want); d.At() != 0 {
			t.Errorf("%s: wrong content is continued at %d", name, d.At())
		}
	}
	s := open(t)
	if _, err := io.WriteString(begin(t, s, "right"), "right and more"); fault.CodeOf(err) != CodeWrong {
		t.Errorf("Write of too much content: got %v, want %s", err, CodeWrong)
	}
}

func TestReadVerifiesDigest(t *testing.T) {
	s := open(t)
	d, err := s.Put([]byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	path, err := s.path(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("c0ntent"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(d, 100); fault.CodeOf(err) != CodeCorrupt {
		t.Errorf("Read of a changed blob: got %v, want %s", err, CodeCorrupt)
	}
	if _, ok := s.Size(d); ok {
		t.Error("the corrupt blob is still there")
	}
}

func TestInvalidDigestsAreRejected(t *testing.T) {
	s := open(t)
	for _, d := range []v1.Hash{{}, {Algorithm: "sha256", Hex: "../../../etc/passwd"}, {Algorithm: "sha512", Hex: strings.Repeat("a", 64)}, {Algorithm: "sha256", Hex: strings.Repeat("A", 64)}} {
		if _, err := s.Open(d); fault.KindOf(err) != fault.Invalid {
			t.Errorf("Open(%v): got %v, want Invalid", d, err)
		}
		if _, err := s.Begin(t.Context(), d, 1); fault.KindOf(err) != fault.Invalid {
			t.Errorf("Begin(%v): got %v, want Invalid", d, err)
		}
	}
}

func TestBeginWaitsForOtherWriter(t *testing.T) {
	s := open(t)
	const text = "shared layer"
	first := begin(t, s, text)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Begin(ctx, digestOf(text), int64(len(text))); !errors.Is(err, context.Canceled) {
		t.Fatalf("Begin of a second writer: got %v, want Canceled", err)
	}
	second := make(chan error, 1)
	go func() {
		d, err := s.Begin(t.Context(), digestOf(text), int64(len(text)))
		if d != nil {
			err = errors.New("there is a draft of an existing blob")
		}
		second <- err
	}()
	write(t, first, text)
	if err := first.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
}

func TestSweepKeepsDraftsInUse(t *testing.T) {
	s := open(t)
	used, left := begin(t, s, "used"), begin(t, s, "left by a crash")
	write(t, left, "left")
	left.Close()
	if _, err := s.Sweep(time.Hour); err != nil {
		t.Fatal(err)
	}
	if n := entries(t, s.drafts); n != 2 {
		t.Fatalf("a fresh draft was swept: %d are left", n)
	}
	if freed, err := s.Sweep(0); err != nil || freed != 4 {
		t.Errorf("Sweep: freed %d bytes, error %v, want 4", freed, err)
	}
	if n := entries(t, s.drafts); n != 1 {
		t.Errorf("Sweep left %d drafts, want 1", n)
	}
	write(t, used, "used")
	if err := used.Commit(); err != nil {
		t.Error(err)
	}
}

// entries returns the number of files in a directory.
func entries(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A process that is killed before any step of a commit leaves either the complete blob or a draft
// that the next process continues.
func TestKilledCommitIsContinued(t *testing.T) {
	const text = "a layer that is committed by a process that dies"
	if dir := os.Getenv("CRANNOG_TEST_BLOB"); dir != "" {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		s.step = func(name string) error {
			if name == os.Getenv("CRANNOG_TEST_STEP") {
				self, err := os.FindProcess(os.Getpid())
				if err != nil {
					return err
				}
				if err := self.Kill(); err != nil {
					return err
				}
				select {}
			}
			return nil
		}
		d := begin(t, s, text)
		write(t, d, text)
		t.Fatal("the process was to be killed: ", d.Commit())
	}
	for _, step := range []string{"sync", "name", "sync directory"} {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledCommitIsContinued$")
		cmd.Env = append(os.Environ(), "CRANNOG_TEST_BLOB="+dir, "CRANNOG_TEST_STEP="+step)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.Success() || strings.Contains(string(out), "FAIL") {
			t.Fatalf("%s: the child was not killed: %v\n%s", step, err, out)
		}
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		d, err := s.Begin(t.Context(), digestOf(text), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		if named := step == "sync directory"; named != (d == nil) {
			t.Errorf("%s: the blob exists: got %v", step, d == nil)
		}
		if d != nil {
			if d.At() != int64(len(text)) {
				t.Errorf("%s: continued at %d", step, d.At())
			}
			if err := d.Commit(); err != nil {
				t.Error(err)
			}
		}
		if got, err := s.Read(digestOf(text), 1000); err != nil || string(got) != text {
			t.Errorf("%s: Read: got %q, error %v", step, got, err)
		}
		if n := entries(t, filepath.Join(dir, "drafts")); n != 0 {
			t.Errorf("%s: %d drafts are left", step, n)
		}
	}
}
