package copytree_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/copytree"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// S12: a copy of very many small files, directories or links stops before inodes run out, even if
// it has no content at all.
func TestS12CopyKeepsFreeInodes(t *testing.T) {
	const inodes = 2000
	for name, one := range map[string]func(string) []any{
		"files":       func(name string) []any { return []any{file(name, 0), nil} },
		"directories": func(name string) []any { return []any{dir(name), nil} },
		"links":       func(name string) []any { return []any{link(name, "x")} },
	} {
		small := tmpfs(t, 64<<20, fmt.Sprintf("nr_inodes=%d", inodes))
		steps := []any{dir("t")}
		for i := range inodes {
			steps = append(steps, one(fmt.Sprintf("%04d", i))...)
		}
		steps = append(steps, nil)
		_, err := unpack(t.Context(), bytes.NewReader(stream(t, steps...)), small, copytree.Options{Confine: true})
		if fault.CodeOf(err) != copytree.CodeDiskFull || !strings.Contains(err.Error(), "inodes") {
			t.Errorf("%s: unpack: error %v", name, err)
		}
		only(t, small)
		// Control: half of them are copied.
		half := append(steps[:1+inodes/2*len(one(""))], nil)
		if _, err := unpack(t.Context(), bytes.NewReader(stream(t, half...)), small, copytree.Options{Confine: true}); err != nil {
			t.Errorf("%s: control: %v", name, err)
		}
	}
}

// S12: a copy removes neither the stage of a running copy to the same destination, nor a file that
// is not a directory of this user.
func TestS12ConcurrentCopiesKeepTheirStages(t *testing.T) {
	dest := t.TempDir()
	begin := func() *copytree.Stage {
		place, err := copytree.Locate(dest, copytree.Entry{Kind: copytree.File, Name: "f"}, false)
		check(t, err)
		stage, err := copytree.Begin(place)
		check(t, err)
		t.Cleanup(place.Close)
		return stage
	}
	entries := func() []os.DirEntry {
		all, err := os.ReadDir(dest)
		check(t, err)
		return all
	}
	// A new stage has no lock yet.
	fresh := filepath.Join(dest, ".crannog-cp-fresh")
	check(t, os.Mkdir(fresh, 0o700))
	begin().Close()
	if got := entries(); len(got) != 1 {
		t.Errorf("a new stage was removed: %v", got)
	}
	defer copytree.SetStaleAfter(0)()
	// Control: an older stage without a lock is removed.
	first := begin()
	got := entries()
	if len(got) != 1 || got[0].Name() == filepath.Base(fresh) {
		t.Fatalf("control: %v", got)
	}
	// Another user must not be able to enter the stage, because they could add files of their own.
	if info, err := got[0].Info(); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("the stage has the mode %v, %v", info.Mode(), err)
	}
	second := begin()
	if got := entries(); len(got) != 2 {
		t.Errorf("two concurrent copies: got %v", got)
	}
	first.Close()
	second.Close()
	only(t, dest)
	write(t, filepath.Join(dest, ".crannog-cp-file"), "mine", 0o600)
	check(t, os.Symlink(t.TempDir(), filepath.Join(dest, ".crannog-cp-link")))
	want := []string{".crannog-cp-file", ".crannog-cp-link"}
	if os.Geteuid() == 0 {
		write(t, filepath.Join(dest, ".crannog-cp-others", "theirs"), "theirs", 0o600)
		check(t, os.Chown(filepath.Join(dest, ".crannog-cp-others"), 54321, 54321))
		want = append(want, ".crannog-cp-others")
	}
	begin().Close()
	only(t, dest, want...)
}

// S12: a conflict is found before anything is moved, whatever its name is.
func TestS12ConflictIsFoundBeforeMoving(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	for _, blocked := range append(names, "") {
		dest := t.TempDir()
		steps := []any{dir("t")}
		for _, name := range names {
			old := filepath.Join(dest, "t", name)
			if name == blocked {
				old = filepath.Join(old, "in the way")
			}
			write(t, old, "old", 0o644)
			steps = append(steps, file(name, 3), "new", nil)
		}
		_, err := unpack(t.Context(), bytes.NewReader(stream(t, append(steps, nil)...)), dest, copytree.Options{Confine: true})
		if want := blocked != ""; errors.Is(err, unix.EISDIR) != want || (err != nil) != want {
			t.Errorf("%q is in the way: %v", blocked, err)
		}
		want := "old"
		if blocked == "" {
			want = "new" // the control
		}
		for _, name := range names {
			if text, err := os.ReadFile(filepath.Join(dest, "t", name)); name != blocked && (err != nil || string(text) != want) {
				t.Errorf("%q is in the way: %s is %q, %v", blocked, name, text, err)
			}
		}
		only(t, dest, "t")
	}
}

// S12: a file that a hostile sandbox marks set-user-ID loses the bit on the host.
func TestS12SetIDBitsAreDropped(t *testing.T) {
	dest := t.TempDir()
	program, shared := file("f", 1), dir("t")
	program.Mode, shared.Mode = 0o6755, 0o6755
	_, err := unpack(t.Context(), bytes.NewReader(stream(t, shared, program, "x", nil, nil)), dest, copytree.Options{Confine: true})
	check(t, err)
	for name, want := range map[string]fs.FileMode{"t": fs.ModeDir | 0o755, "t/f": 0o755} {
		if info, err := os.Stat(filepath.Join(dest, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: Stat: got %v, error %v", name, info.Mode(), err)
		}
	}
}

// repeated reads as head and then as the same data without end.
type repeated struct{ head, again []byte }

func (r *repeated) Read(b []byte) (int, error) {
	if len(r.head) == 0 {
		r.head = bytes.Repeat(r.again, 10_000)
	}
	n := copy(b, r.head)
	r.head = r.head[n:]
	return n, nil
}

// S12: a stream is rejected at its limits, before anything of that size is held or written.
func TestS12ReaderEnforcesLimits(t *testing.T) {
	open := stream(t, dir("t"), nil)
	open = open[:len(open)-2] // without the two ends
	number := func(n uint64) []byte { return binary.AppendUvarint(nil, n) }
	deep := func(n int) []byte {
		var steps []any
		for range n {
			steps = append(steps, dir("d"))
		}
		return stream(t, append(steps, make([]any, n)...)...)
	}
	huge := stream(t, file("f", 1<<40), nil)
	huge = huge[:len(huge)-2]
	for name, in := range map[string]io.Reader{
		"directories in each other": bytes.NewReader(deep(513)),
		"files":                     &repeated{head: open, again: []byte("x\x01a")},
		"a name":                    &repeated{head: append(append(open[:len(open):len(open)], 'x'), number(1<<40)...), again: []byte("a")},
		"a piece":                   &repeated{head: append(append(huge, 'D', 0), number(1<<39)...), again: []byte("a")},
		"an error":                  &repeated{head: append(append(open[:len(open):len(open)], 'E'), number(1<<40)...), again: []byte("a")},
	} {
		r := copytree.NewReader(in)
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, copytree.ErrMalformed) {
			t.Errorf("%s: Next: error %v", name, err)
		}
	}
	// Control: a stream just within the limits is read.
	r := copytree.NewReader(bytes.NewReader(deep(512)))
	for {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// pages requires a kernel with a file of size 0 and terabytes of content.
var pages = hosttest.Requirement{Name: "file /proc/self/pagemap", Has: func() bool {
	info, err := os.Stat("/proc/self/pagemap")
	return err == nil && info.Size() == 0
}}

// S12: a file without a size is read up to a limit, not to its end.
func TestS12FilesWithoutSizeAreBounded(t *testing.T) {
	hosttest.Need(t, pages)
	if sent := pack(t, "/proc/self/pagemap", false); len(sent) > 5<<20 || len(sent) < 1<<20 {
		t.Errorf("got a stream of %d bytes", len(sent))
	}
}
