package volume

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// Environment of the process that ends itself at a step.
const (
	roleVariable = "CRANNOG_TEST_VOLUME_ROLE"
	stepVariable = "CRANNOG_TEST_VOLUME_STEP"
	dirVariable  = "CRANNOG_TEST_VOLUME_DIR"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		die(role)
	}
	os.Exit(m.Run())
}

// die creates, copies or removes a volume and kills itself at a step. It exits with 3 if the step
// is never reached.
func die(role string) {
	s := Open(os.Getenv(dirVariable), slog.New(slog.DiscardHandler))
	s.step = func(name string) {
		if name == os.Getenv(stepVariable) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	ctx := context.Background()
	list, err := s.List()
	switch {
	case err != nil:
	case role == "create":
		_, err = s.Create(ctx, Request{Name: "new", Bytes: MinBytes})
	case role == "snapshot":
		_, err = s.Snapshot(ctx, list[0].ID, Request{Name: "new"}, unused)
	case role == "remove":
		err = s.Remove(list[0].ID, unused)
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	os.Exit(3)
}

func unused() error { return nil }

// store returns an empty store and checks at the end that nothing of it stays mounted.
func store(t *testing.T) *Store {
	t.Helper()
	s := Open(filepath.Join(t.TempDir(), "volumes"), slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := s.Release(func() (func(string) bool, error) { return func(string) bool { return false }, nil }); err != nil {
			t.Error(err)
		}
		if n, err := s.Mounted(); n != 0 || err != nil {
			t.Errorf("%d file systems are still mounted: %v", n, err)
		}
	})
	return s
}

func create(t *testing.T, s *Store, req Request) (Volume, *Files) {
	t.Helper()
	v, err := s.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Files(v.ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return v, f
}

func write(t *testing.T, f *Files, name, text string) {
	t.Helper()
	if err := f.Write(name, strings.NewReader(text), Attributes{}, true); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, f *Files, name string) string {
	t.Helper()
	file, err := f.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("%s: got %v, want %s", what, err, code)
	}
}

// P66: no program can write more than the quota of a volume.
func TestQuotaIsEnforced(t *testing.T) {
	hosttest.Need(t, hosttest.Loop)
	s := store(t)
	v, f := create(t, s, Request{Name: "data", Bytes: MinBytes, Files: 64})
	err := f.Write("big", io.LimitReader(zeros{}, MinBytes), Attributes{}, true)
	wantCode(t, "more bytes than the quota", err, "volume_full")
	write(t, f, "small", "fits")
	// The positive control: a file that fits is stored after one that did not.
	if got := read(t, f, "small"); got != "fits" {
		t.Errorf("read %q", got)
	}
	made := int64(0)
	for ; err == nil || made == 0; made++ {
		err = f.MakeDir("d"+strings.Repeat("x", int(made%200))+string(rune('a'+made%26))+strings.Repeat("y", int(made/200)), Attributes{}, false)
		if made > 100_000 {
			t.Fatal("the number of files has no limit")
		}
	}
	wantCode(t, "more files than the quota", err, "volume_full")
	if made != v.Files { // one creation failed, and "small" is a file too
		t.Errorf("%d directories were created and %d files are allowed", made-1, v.Files)
	}
	u, err := s.Usage(v)
	if err != nil || u.UsedFiles < v.Files || u.TotalBytes > MinBytes {
		t.Errorf("Usage: got %+v, error %v, want the quota of %+v used up", u, err, v)
	}
}

func TestNamesAndOwners(t *testing.T) {
	s := store(t)
	for _, name := range []string{"", ".", "..", "../x", "a/b", ".lock", "-x", "a b", "a\x00", strings.Repeat("a", 64)} {
		_, err := s.Create(t.Context(), Request{Name: name, Unlimited: true})
		wantCode(t, name, err, "volume_name_invalid")
	}
	first, _ := create(t, s, Request{Name: "a", Owner: "one", Unlimited: true})
	create(t, s, Request{Name: "a", Owner: "two", Unlimited: true})
	_, err := s.Create(t.Context(), Request{Name: "a", Owner: "one", Unlimited: true})
	wantCode(t, "the same name again", err, "volume_exists")
	if _, err := s.Get("../" + first.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("Get of an ID with a path: got %v, want NotFound", err)
	}
	for _, req := range []Request{{Bytes: 1}, {Bytes: MinBytes, Files: 1}, {Bytes: MinBytes, Unlimited: true}, {Bytes: -1}} {
		req.Name = "b"
		_, err := s.Create(t.Context(), req)
		wantCode(t, "an invalid size", err, "volume_quota_invalid")
	}
	hosttest.Need(t, hosttest.Loop)
	_, err = s.Create(t.Context(), Request{Name: "b", Owner: "one", Bytes: 64 << 20, Budget: 32 << 20})
	wantCode(t, "more than the budget", err, "volume_budget")
}

// A sandbox can put any link, pipe or device into a volume.
func TestHostileContent(t *testing.T) {
	s := store(t)
	v, f := create(t, s, Request{Name: "data", Unlimited: true})
	outside := filepath.Join(t.TempDir(), "outside")
	tree := filepath.Join(s.at(v.ID), treeName)
	if err := errors.Join(
		os.Mkdir(outside, 0o755), os.WriteFile(filepath.Join(outside, "file"), []byte("host"), 0o600),
		os.Symlink(outside, filepath.Join(tree, "dir")), os.Symlink(filepath.Join(outside, "file"), filepath.Join(tree, "link")),
		os.Symlink("/etc/passwd", filepath.Join(tree, "passwd")), unix.Mkfifo(filepath.Join(tree, "pipe"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dir/file", "link", "passwd", "dir/../link"} {
		if file, err := f.Read(name); err == nil {
			t.Errorf("%s was read", name)
			file.Close()
		}
	}
	if _, err := f.Read("pipe"); fault.KindOf(err) != fault.Invalid {
		t.Errorf("Read of a pipe: got %v, want Invalid", err)
	}
	wantCode(t, "write below a link", f.Write("dir/new", strings.NewReader("x"), Attributes{}, true), "volume_path_invalid")
	wantCode(t, "create below a link", f.MakeDir("dir/new", Attributes{}, true), "volume_path_exists")
	wantCode(t, "attributes of a link", f.SetAttributes("link", Attributes{}), "volume_path_link")
	for _, name := range []string{"../x", "a/../../x", "/../x"} {
		wantCode(t, name, f.Write(name, strings.NewReader("x"), Attributes{}, true), "volume_path_invalid")
	}
	// Replacing and removing a link changes the link alone.
	write(t, f, "link", "inside")
	if err := errors.Join(f.Remove("dir"), f.Remove("passwd")); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(outside); len(entries) != 1 || err != nil {
		t.Errorf("files outside: got %v, error %v, want one", entries, err)
	}
	if data, err := os.ReadFile(filepath.Join(outside, "file")); string(data) != "host" || err != nil {
		t.Errorf("the file outside: got %q, error %v, want host", data, err)
	}
	mode := uint32(0o6777)
	if err := f.Write("setuid", strings.NewReader("x"), Attributes{Mode: &mode}, true); err != nil {
		t.Fatal(err)
	}
	if e, err := f.Stat("setuid"); err != nil || e.Mode != 0o777 {
		t.Errorf("Stat of setuid: got mode %o, error %v, want 777", e.Mode, err)
	}
}

func TestTar(t *testing.T) {
	s := store(t)
	_, f := create(t, s, Request{Name: "data", Unlimited: true})
	write(t, f, "a", "one")
	if err := errors.Join(f.MakeDir("d/e", Attributes{}, true), f.link("d/l", "../a")); err != nil {
		t.Fatal(err)
	}
	write(t, f, "d/e/f", "two")
	var all bytes.Buffer
	if err := f.WriteTar("/", &all); err != nil {
		t.Fatal(err)
	}
	_, g := create(t, s, Request{Name: "copy", Unlimited: true})
	if err := g.ReadTar("x", &all); err != nil {
		t.Fatal(err)
	}
	if got := read(t, g, "x/d/e/f") + read(t, g, "/x/a"); got != "twoone" {
		t.Errorf("read %q", got)
	}
	if e, err := g.Stat("x/d/l"); err != nil || e.Target != "../a" {
		t.Errorf("Stat of the link: got %+v, error %v", e, err)
	}
	for _, head := range []tar.Header{
		{Name: "../out", Typeflag: tar.TypeReg}, {Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
		{Name: "c", Typeflag: tar.TypeChar}, {Name: "p", Typeflag: tar.TypeFifo},
	} {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		if err := errors.Join(w.WriteHeader(&head), w.Close()); err != nil {
			t.Fatal(err)
		}
		if err := g.ReadTar("/", &buf); fault.KindOf(err) != fault.Invalid {
			t.Errorf("ReadTar with %q: got %v, want Invalid", head.Name, err)
		}
	}
	list, err := g.List("/", 10)
	if err != nil || len(list) != 6 {
		t.Errorf("List: got %+v, error %v, want 6 entries", list, err)
	}
}

func TestSnapshot(t *testing.T) {
	for name, req := range map[string]Request{"image": {Bytes: MinBytes}, "tree": {Unlimited: true}} {
		t.Run(name, func(t *testing.T) {
			if !req.Unlimited {
				hosttest.Need(t, hosttest.Loop)
			}
			s := store(t)
			req.Name = "data"
			v, f := create(t, s, req)
			write(t, f, "a", "before")
			busy := errors.New("in use")
			if _, err := s.Snapshot(t.Context(), v.ID, Request{Name: "copy"}, func() error { return busy }); !errors.Is(err, busy) {
				t.Errorf("Snapshot of a volume in use: got %v", err)
			}
			if err := s.Remove(v.ID, func() error { return busy }); !errors.Is(err, busy) {
				t.Errorf("Remove of a volume in use: got %v", err)
			}
			if !req.Unlimited {
				_, err := s.Snapshot(t.Context(), v.ID, Request{Name: "copy"}, unused)
				wantCode(t, "Snapshot of a volume with open files", err, "volume_in_use")
			}
			f.Close()
			c, err := s.Snapshot(t.Context(), v.ID, Request{Name: "copy"}, unused)
			if err != nil || c.From != "data" || c.Files != v.Files {
				t.Fatalf("Snapshot: got %+v, error %v", c, err)
			}
			f, err = s.Files(v.ID)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			write(t, f, "a", "after")
			g, err := s.Files(c.ID)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			if got := read(t, g, "a"); got != "before" {
				t.Errorf("the snapshot has %q", got)
			}
		})
	}
}

// The file system of a volume stays mounted for a sandbox that only reads. A snapshot has all that
// was written before, also what was only in memory.
func TestSnapshotWhileItIsRead(t *testing.T) {
	hosttest.Need(t, hosttest.Loop)
	s := store(t)
	v, f := create(t, s, Request{Name: "data", Bytes: MinBytes, Files: 64})
	dir, err := s.Attach(v.ID)
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := unix.Mount(dir, other, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(other, 0); err != nil {
			t.Error(err)
		}
	})
	for range 3 { // until the journal is written, the file system counts removed files as used
		for i := range 50 {
			if err := os.WriteFile(filepath.Join(other, fmt.Sprint(i)), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 50 {
			if err := os.Remove(filepath.Join(other, fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(other, "last"), []byte("unsynced"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Close()
	c, err := s.Snapshot(t.Context(), v.ID, Request{Name: "copy"}, unused)
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Files(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if got := read(t, g, "last"); got != "unsynced" {
		t.Errorf("read %q", got)
	}
	for i := range 40 {
		write(t, g, fmt.Sprint("new", i), "x")
	}
}

// A process that is killed at any step leaves a whole volume or nothing.
func TestKilledAtEachStep(t *testing.T) {
	hosttest.Need(t, hosttest.Loop)
	for role, at := range map[string][]string{
		"create":   {"draft made", "allocated", "formatted", "mounted", "filled", "described", "named"},
		"snapshot": {"draft made", "filled", "described", "named"},
		"remove":   {"unmounted", "name gone"},
	} {
		for _, step := range at {
			t.Run(role+"/"+step, func(t *testing.T) {
				s := store(t)
				if role != "create" {
					_, f := create(t, s, Request{Name: "old", Bytes: MinBytes})
					write(t, f, "kept", "kept")
					f.Close()
				}
				cmd := exec.CommandContext(t.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), roleVariable+"="+role, stepVariable+"="+step, dirVariable+"="+s.dir)
				out, err := cmd.CombinedOutput()
				if status, ok := errors.AsType[*exec.ExitError](err); !ok || status.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("the child ended with %v, want SIGKILL: %s", err, out)
				}
				if err := s.Sweep(); err != nil {
					t.Fatal(err)
				}
				wantLeft(t, s, role, step)
			})
		}
	}
}

// wantLeft checks what is left after a process was killed.
func wantLeft(t *testing.T, s *Store, role, step string) {
	t.Helper()
	want := map[string]bool{"old": role == "snapshot" || step == "unmounted", "new": step == "named"}
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) != len(list)+1 { // and the lock
		t.Errorf("got %d entries for %d volumes, error %v, want only the lock in addition", len(entries), len(list), err)
	}
	have := map[string]bool{}
	for _, v := range list {
		have[v.Name] = true
		f, err := s.Files(v.ID)
		if err != nil {
			t.Fatal(err)
		}
		if role != "create" && read(t, f, "kept") != "kept" {
			t.Error("the content is lost")
		}
		f.Close()
		if err := s.Remove(v.ID, unused); err != nil {
			t.Error(err)
		}
	}
	for name, exists := range want {
		if have[name] != exists {
			t.Errorf("volume %s exists: got %t, want %t", name, have[name], exists)
		}
	}
}
