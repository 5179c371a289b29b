package holes

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// The output equals the input, wherever runs of zeros begin and end.
func TestThroughPreservesContent(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		var want []byte
		for range random.IntN(6) {
			piece := make([]byte, random.IntN(3*holeSize*(1+random.IntN(50))))
			if random.IntN(2) == 0 {
				for i := range piece {
					piece[i] = byte(random.Uint32())
				}
			}
			want = append(want, piece...)
		}
		w := newFile(t)
		err := Through(w, func(in *os.File) error {
			for remaining := want; len(remaining) > 0; {
				n, err := in.Write(remaining[:min(len(remaining), 1+random.IntN(100_000))])
				if err != nil {
					return err
				}
				remaining = remaining[n:]
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(w.Name()); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("round %d: %d bytes became %d different ones, %v", round, len(want), len(got), err)
		}
	}
}

// An output that is not a regular file receives the zeros themselves.
func TestThroughToStreamWritesZeros(t *testing.T) {
	var w bytes.Buffer
	want := append(make([]byte, 3*holeSize), "end"...)
	if err := Through(&w, func(in *os.File) error {
		_, err := in.Write(want)
		return err
	}); err != nil || !bytes.Equal(w.Bytes(), want) {
		t.Errorf("%d bytes became %d different ones, %v", len(want), w.Len(), err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	err = Through(in, func(to *os.File) error {
		_, err := to.Write(want)
		return err
	})
	in.Close()
	if got, failed := io.ReadAll(out); err != nil || failed != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes became %d different ones in a pipe, %v, %v", len(want), len(got), err, failed)
	}
}

func TestThroughWritesHoles(t *testing.T) {
	w := newFile(t)
	piece := make([]byte, 1<<20)
	if err := Through(w, func(in *os.File) error {
		for range 256 {
			if _, err := in.Write(piece); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	info, err := w.Stat()
	if err != nil || info.Size() != 256<<20 || info.Sys().(*syscall.Stat_t).Blocks*512 > 1<<20 {
		t.Errorf("the file is %+v, %v; want 256 MiB in size and at most 1 MiB on the disk", info, err)
	}
}

// If one end fails, Through does not wait for the other.
func TestThroughFailsAtOnce(t *testing.T) {
	broken := errors.New("broken")
	var second *os.File
	err := Through(newFile(t), func(in *os.File) error {
		// A kernel has a separate descriptor, which stays open.
		fd, err := syscall.Dup(int(in.Fd()))
		if err != nil {
			return err
		}
		second = os.NewFile(uintptr(fd), "kernel's")
		return broken
	})
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	defer second.Close()
	if _, err := second.Write([]byte("more")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("writing is still possible: %v", err)
	}

	closed := newFile(t)
	closed.Close()
	if err := Through(closed, func(in *os.File) error {
		piece := make([]byte, 1<<20)
		for {
			if _, err := in.Write(piece); err != nil {
				return err
			}
		}
	}); err == nil {
		t.Error("writing to a closed file succeeds")
	}

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := Through(full, func(in *os.File) error {
		_, err := in.Write([]byte("something"))
		return err
	}); !errors.Is(err, syscall.ENOSPC) || !isCopyError(err) {
		t.Errorf("a full disk: %v", err)
	}
	own := errors.New("of the function")
	if err := Through(newFile(t), func(*os.File) error { return own }); !errors.Is(err, own) || isCopyError(err) {
		t.Errorf("an error of the function: %v", err)
	}
}

func isCopyError(err error) bool {
	_, ok := errors.AsType[*CopyError](err)
	return ok
}

// newFile creates an empty file.
func newFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
