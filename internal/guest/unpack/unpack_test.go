package unpack_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/unpack"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// item is an entry of an archive with its content.
type item struct {
	tar.Header
	content string
}

// pack returns an archive of items.
func pack(t testing.TB, items ...item) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, i := range items {
		if i.Mode == 0 {
			i.Mode = 0o755
		}
		i.Size = int64(len(i.content))
		i.Uid, i.Gid = os.Getuid(), os.Getgid()
		i.Format = tar.FormatPAX
		if err := w.WriteHeader(&i.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(i.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// regular returns a regular file.
func regular(name, content string) item {
	return item{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o640}, content}
}

// entry returns an entry of another type.
func entry(name string, kind byte, linkname string) item {
	return item{Header: tar.Header{Name: name, Typeflag: kind, Linkname: linkname}}
}

// opaqueDir returns a directory that hides the one in the lower layer.
func opaqueDir(name string) item {
	return item{Header: tar.Header{Name: name, Typeflag: tar.TypeDir, PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}}}
}

// over unpacks items.
func over(t testing.TB, root string, items ...item) {
	t.Helper()
	if err := unpack.Over(root, bytes.NewReader(pack(t, items...))); err != nil {
		t.Fatal(err)
	}
}

// write writes a file below root.
func write(t testing.TB, root, name, content string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// read returns the content of a file below root.
func read(t testing.TB, root, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestOver(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"kept": "kept", "changed": "before", "dir/kept": "kept", "dir/gone": "x", "gone/deep/file": "x",
		"opaque/old": "x", "was/a/directory": "x", "was-file": "x",
	} {
		write(t, root, name, content)
	}
	at := time.Unix(1_700_000_000, 123_000_000)
	holes := strings.Repeat("\x00", 1<<20) + "end" + strings.Repeat("\x00", 8190)
	items := []item{
		entry("./", tar.TypeDir, ""),
		regular("./changed", "after"), entry("./dir/", tar.TypeDir, ""), entry("./dir/gone", tar.TypeChar, ""),
		regular("./dir/new", "new"), entry("./gone", tar.TypeChar, ""), opaqueDir("./opaque/"), regular("./opaque/new", "new"),
		regular("./was", "a file"), entry("./was-file/", tar.TypeDir, ""), regular("./was-file/below", "below"),
		entry("./link", tar.TypeSymlink, "/etc/passwd"), entry("./hard", tar.TypeLink, "./dir/new"), entry("./pipe", tar.TypeFifo, ""),
		regular("./empty", ""), regular("./holes", holes), entry("./proc/", tar.TypeDir, ""), regular("./proc/x", "x"),
		{Header: tar.Header{Name: "./suid", Typeflag: tar.TypeReg, Mode: 0o4711, PAXRecords: map[string]string{"SCHILY.xattr.user.mine": "yes"}}},
		{Header: tar.Header{Name: "./late/", Typeflag: tar.TypeDir, Mode: 0o1777}}, regular("./late/file", "x"),
	}
	for i := range items {
		items[i].ModTime = at
	}
	over(t, root, items...)
	for name, want := range map[string]string{
		"kept": "kept", "changed": "after", "dir/kept": "kept", "dir/new": "new", "opaque/new": "new", "was": "a file",
		"was-file/below": "below", "hard": "new", "empty": "", "holes": holes,
	} {
		if got := read(t, root, name); got != want {
			t.Errorf("content of %s: got %.40q, want %.40q", name, got, want)
		}
	}
	for _, name := range []string{"dir/gone", "gone", "opaque/old", "was/a", "proc"} {
		if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
			t.Errorf("%s exists, want it removed", name)
		}
	}
	if to, err := os.Readlink(filepath.Join(root, "link")); err != nil || to != "/etc/passwd" {
		t.Errorf("link: got %q, %v, want /etc/passwd", to, err)
	}
	for name, want := range map[string]os.FileMode{
		"changed": 0o640, "suid": os.ModeSetuid | 0o711, "late": os.ModeDir | os.ModeSticky | 0o777, "pipe": os.ModeNamedPipe | 0o755,
	} {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil || info.Mode() != want || !info.ModTime().Equal(at) {
			t.Errorf("mode and time of %s: got %v, %v, want %v", name, info, err, want)
		}
	}
	var first, second, sparse unix.Stat_t
	for name, into := range map[string]*unix.Stat_t{"hard": &first, "dir/new": &second, "holes": &sparse} {
		if err := unix.Lstat(filepath.Join(root, name), into); err != nil {
			t.Fatal(err)
		}
	}
	if first.Ino != second.Ino {
		t.Error("the hard link is a separate file")
	}
	if sparse.Blocks*512 > 64<<10 {
		t.Errorf("the file with holes needs %d bytes of disk", sparse.Blocks*512)
	}
	value := make([]byte, 8)
	if n, err := unix.Getxattr(filepath.Join(root, "suid"), "user.mine", value); err != nil || string(value[:n]) != "yes" {
		t.Errorf("attribute: got %q, %v, want yes", value[:max(n, 0)], err)
	}
}

func TestOwnersAreRestored(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	root := t.TempDir()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	kinds := map[string]byte{"f": tar.TypeReg, "d/": tar.TypeDir, "l": tar.TypeSymlink, "p": tar.TypeFifo}
	for name, kind := range kinds {
		if err := w.WriteHeader(&tar.Header{Name: "./" + name, Typeflag: kind, Linkname: "/etc/passwd", Uid: 1234, Gid: 4321, Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unpack.Over(root, &out); err != nil {
		t.Fatal(err)
	}
	for name := range kinds {
		var stat unix.Stat_t
		if err := unix.Lstat(filepath.Join(root, strings.TrimSuffix(name, "/")), &stat); err != nil || stat.Uid != 1234 || stat.Gid != 4321 {
			t.Errorf("owner of %s: got %d:%d, %v, want 1234:4321", name, stat.Uid, stat.Gid, err)
		}
	}
}

// An archive cannot write or remove files outside the root or through a link, not even a link
// within the root.
func TestArchiveCannotLeaveTheRoot(t *testing.T) {
	for name, items := range map[string][]item{
		"parent":                               {regular("../outside/canary", "x")},
		"parent of a directory":                {regular("./a/../../outside/canary", "x")},
		"absolute":                             {regular("/outside/canary", "x")},
		"empty name":                           {entry(".", tar.TypeFifo, "")},
		"write through a link":                 {entry("./way", tar.TypeSymlink, "../outside"), regular("./way/canary", "x")},
		"write through a link within the root": {entry("./way", tar.TypeSymlink, "inside"), regular("./way/canary", "x")},
		"remove through a link":                {entry("./way", tar.TypeSymlink, "../outside"), entry("./way/canary", tar.TypeChar, "")},
		"hard link through a link":             {entry("./way", tar.TypeSymlink, "../outside"), entry("./mine", tar.TypeLink, "./way/canary")},
		"hard link to the parent":              {entry("./mine", tar.TypeLink, "../outside/canary")},
		"hard link to a link":                  {entry("./way", tar.TypeSymlink, "../outside/canary"), entry("./mine", tar.TypeLink, "./way"), entry("./mine/x", tar.TypeDir, "")},
		"too deep":                             {regular(strings.Repeat("d/", 300)+"f", "x")},
		"unknown type":                         {entry("./x", 'z', "")},
		"root is a link":                       {entry("./", tar.TypeSymlink, "/")},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			root := filepath.Join(parent, "root")
			write(t, parent, "outside/canary", "secret")
			write(t, root, "inside/canary", "secret")
			if err := unpack.Over(root, bytes.NewReader(pack(t, items...))); err == nil {
				t.Error("the archive was accepted")
			}
			if read(t, parent, "outside/canary") != "secret" || read(t, root, "inside/canary") != "secret" {
				t.Error("the canary has changed")
			}
		})
	}
}

func TestTruncatedArchivesAreRejected(t *testing.T) {
	whole := pack(t, regular("./a", strings.Repeat("x", 5000)), regular("./b", "y"))
	for _, cut := range []int{100, 600, 3000, len(whole) - 1500, len(whole) - 1024, len(whole) - 512} {
		if err := unpack.Over(t.TempDir(), bytes.NewReader(whole[:cut])); err == nil {
			t.Errorf("got no error for %d of %d bytes", cut, len(whole))
		}
	}
	if err := unpack.Over(filepath.Join(t.TempDir(), "absent"), bytes.NewReader(whole)); err == nil {
		t.Error("got no error for a missing root")
	}
}

func FuzzOver(f *testing.F) {
	f.Add(pack(f, regular("./a", "x"), entry("./d/", tar.TypeDir, ""), entry("./d/l", tar.TypeSymlink, "../../outside"), regular("./d/f", "y")))
	f.Add(pack(f, entry("./way", tar.TypeSymlink, "../outside"), regular("./way/canary", "x")))
	f.Add(pack(f, opaqueDir("./o/"), entry("./o/w", tar.TypeChar, ""), entry("./h", tar.TypeLink, "./o")))
	f.Add([]byte("no archive"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		parent := t.TempDir()
		root := filepath.Join(parent, "root")
		write(t, parent, "outside/canary", "secret")
		write(t, root, "d/old", "x")
		_ = unpack.Over(root, bytes.NewReader(archive)) // it may return an error
		if read(t, parent, "outside/canary") != "secret" {
			t.Fatal("the canary has changed")
		}
		for _, dir := range []string{parent, filepath.Join(parent, "outside")} {
			names, err := os.ReadDir(dir)
			if err != nil || len(names) > 2 {
				t.Fatalf("%s: got the files %v, %v", dir, names, err)
			}
		}
	})
}
