package layer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// dir, file, symlink and hardlink return headers of entries. Linkname of a file is its content.
func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }
func file(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Linkname: content}
}
func symlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}
}
func hardlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
}

// archive returns a layer with the entries.
func archive(t testing.TB, list ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range list {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
			h.Size = int64(len(content))
		}
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1_700_000_000, 0)
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpack applies layers to a directory that has a file beside the tree, which must stay unchanged.
func unpack(t testing.TB, limits layer.Limits, layers ...[]byte) (root string, counts layer.Counts, err error) {
	t.Helper()
	parent := t.TempDir()
	root = filepath.Join(parent, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(parent, "beside"), []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	tree, err := layer.Open(root, limits)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for _, l := range layers {
		if err = tree.Apply(t.Context(), bytes.NewReader(l)); err != nil {
			break
		}
	}
	if err == nil {
		err = tree.Finish()
	}
	beside, readErr := os.ReadFile(filepath.Join(parent, "beside"))
	list, dirErr := os.ReadDir(parent)
	if readErr != nil || dirErr != nil || string(beside) != "untouched" || len(list) != 2 {
		t.Fatalf("files beside the tree: got content %q (%v) and entries %v (%v), want them untouched", beside, readErr, list, dirErr)
	}
	return root, tree.Counts(), err
}

// names lists a tree, with the targets of links.
func names(t testing.TB, root string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name := strings.TrimPrefix(path, root)
		switch {
		case d.IsDir():
			name += "/"
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			name += " -> " + to
		case d.Type().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name += "=" + string(data)
		default:
			name += " " + d.Type().String()
		}
		list = append(list, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestApplyLayersInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		layers [][]tar.Header
		want   []string
	}{
		"files, links, directories": {
			[][]tar.Header{{dir("a/"), file("a/f", "1"), hardlink("a/hard", "a/f"), symlink("l", "a/f"), hardlink("l2", "l"), file("no/parent", "2")}},
			[]string{"/a/", "/a/f=1", "/a/hard=1", "/l -> a/f", "/l2 -> a/f", "/no/", "/no/parent=2"},
		},
		"a later layer wins": {
			[][]tar.Header{{dir("d"), file("d/f", "old"), file("x", "file"), dir("y"), file("y/z", "1")}, {file("d/f", "new"), dir("x"), file("y", "file")}},
			[]string{"/d/", "/d/f=new", "/x/", "/y=file"},
		},
		"whiteouts": {
			[][]tar.Header{{dir("d"), file("d/gone", "1"), file("d/stays", "1"), dir("tree"), dir("tree/below"), file("tree/below/f", "1")}, {file("d/.wh.gone", ""), file(".wh.tree", "")}},
			[]string{"/d/", "/d/stays=1"},
		},
		"opaque": {
			[][]tar.Header{{dir("d"), file("d/old", "1"), dir("d/both"), file("d/both/old", "1")}, {dir("d"), file("d/new", "2"), dir("d/both"), file("d/both/new", "2"), file("d/.wh..wh..opq", "")}},
			[]string{"/d/", "/d/both/", "/d/both/new=2", "/d/new=2"},
		},
		"a whiteout spares its own layer": {
			[][]tar.Header{{file("f", "old")}, {file("f", "new"), file(".wh.f", "")}},
			[]string{"/f=new"},
		},
		"through a link as inside": {
			[][]tar.Header{{dir("usr/lib"), symlink("lib", "/usr/lib"), symlink("up", "../../../usr")}, {file("lib/a.so", "a"), file("up/b", "b"), file("lib/.wh.none", "")}},
			[]string{"/lib -> /usr/lib", "/up -> ../../../usr", "/usr/", "/usr/b=b", "/usr/lib/", "/usr/lib/a.so=a"},
		},
		"names that differ in case only": {
			[][]tar.Header{{file("README", "upper"), file("readme", "lower"), dir("Dir"), file("dir", "file")}},
			[]string{"/Dir/", "/README=upper", "/dir=file", "/readme=lower"},
		},
	} {
		var layers [][]byte
		for _, l := range c.layers {
			layers = append(layers, archive(t, l...))
		}
		root, _, err := unpack(t, layer.DefaultLimits, layers...)
		if err != nil {
			t.Errorf("%s: unpack: error %v", name, err)
			continue
		}
		if got := names(t, root); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// P54: no entry of a layer reaches outside the directory, regardless of its name.
func TestEntriesStayInTree(t *testing.T) {
	for name, list := range map[string][]tar.Header{
		"..":                             {file("../beside", "mine")},
		".. within":                      {file("a/../../beside", "mine")},
		".. of a directory":              {dir("..")},
		"hard link to ..":                {hardlink("h", "../beside")},
		"hard link to nothing":           {hardlink("h", "beside")},
		"hard link to a directory":       {dir("d"), hardlink("h", "d")},
		"hard link through a link":       {symlink("up", ".."), hardlink("h", "up/beside")},
		"below a file":                   {file("f", ""), file("f/g", "")},
		"below a link to nothing":        {symlink("l", "/nothing"), file("l/f", "")},
		"a loop of links":                {symlink("a", "b"), symlink("b", "a"), file("a/f", "")},
		"whiteout of ..":                 {file(".wh...", "")},
		"whiteout of .":                  {file(".wh..", "")},
		"whiteout of nothing":            {file(".wh.", "")},
		"a very long name":               {file(strings.Repeat("a/", 5000)+"f", "")},
		"a very long part":               {file(strings.Repeat("a", 300), "")},
		"too deep":                       {file(strings.Repeat("a/", 300)+"f", "")},
		"a link without a target":        {{Typeflag: tar.TypeSymlink, Name: "l"}},
		"a link with a very long target": {symlink("l", strings.Repeat("a", 5000))},
		"a type that does not exist":     {{Typeflag: 'Z', Name: "z"}},
	} {
		_, _, err := unpack(t, layer.DefaultLimits, archive(t, list...))
		if fault.CodeOf(err) != layer.CodeRefused {
			t.Errorf("%s: unpack: error %v", name, err)
		}
	}
	// These entries are unpacked within the tree.
	for name, list := range map[string][]tar.Header{
		"absolute":                    {file("/beside", "mine")},
		"link to .. as parent":        {symlink("up", "../.."), file("up/beside", "mine")},
		"absolute link":               {symlink("abs", "/"), file("abs/beside", "mine")},
		"a link that a file replaces": {symlink("beside", "../beside"), file("beside", "mine")},
	} {
		root, _, err := unpack(t, layer.DefaultLimits, archive(t, list...))
		if err != nil {
			t.Errorf("%s: unpack: error %v", name, err)
			continue
		}
		if data, err := os.ReadFile(filepath.Join(root, "beside")); err != nil || string(data) != "mine" {
			t.Errorf("%s: ReadFile: got %q, error %v", name, data, err)
		}
	}
}

func TestApplyOmitsDevicesAndSetIDBits(t *testing.T) {
	set := file("setid", "program")
	set.Mode = 0o6755
	setDir := dir("setdir")
	setDir.Mode = 0o3777
	root, counts, err := unpack(t, layer.DefaultLimits, archive(t, set, setDir,
		tar.Header{Typeflag: tar.TypeChar, Name: "kmem", Mode: 0o666, Devmajor: 1, Devminor: 2},
		tar.Header{Typeflag: tar.TypeBlock, Name: "disk", Mode: 0o666, Devmajor: 8},
		tar.Header{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o666},
		dir(".crannog"), file(".crannog/crannog-guest", "mine"), symlink("l", "/.crannog"), file("l/x", ""),
	))
	// The link leads to a directory in which no layer can create files.
	if fault.CodeOf(err) != layer.CodeRefused {
		t.Errorf("entry below the guest's directory through a link: got %v", err)
	}
	if got, want := names(t, root), []string{"/l -> /.crannog", "/setdir/", "/setid=program"}; !slices.Equal(got, want) {
		t.Errorf("unpacked files: got %q, want %q", got, want)
	}
	if counts.Skipped != 5 {
		t.Errorf("got %d skipped entries, want 5", counts.Skipped)
	}
	info, err := os.Stat(filepath.Join(root, "setid"))
	if err != nil || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 || info.Mode().Perm() != 0o755 {
		t.Errorf("set-id program: got %v, error %v, want mode 0755", info, err)
	}
	root, _, err = unpack(t, layer.DefaultLimits, archive(t, setDir))
	if err != nil {
		t.Fatal(err)
	}
	info, err = os.Stat(filepath.Join(root, "setdir"))
	if err != nil || info.Mode()&fs.ModeSetgid != 0 || info.Mode()&fs.ModeSticky == 0 || info.Mode().Perm() != 0o777 {
		t.Errorf("directory: %v %v", info, err)
	}
}

func TestOwnersAndTimes(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	f, l, d := file("f", "x"), symlink("l", "f"), dir("d")
	f.Uid, f.Gid, l.Uid, l.Gid, d.Uid, d.Gid = 1, 2, 3, 4, 5, 70000
	d.Mode = 0o500
	root, _, err := unpack(t, layer.DefaultLimits, archive(t, f, l, d, file("d/inside", "y")))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]uint32{"f": {1, 2}, "l": {3, 4}, "d": {5, 70000}} {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || stat.Uid != want[0] || stat.Gid != want[1] || info.ModTime().Unix() != 1_700_000_000 {
			t.Errorf("%s: got owner %+v, want %v", name, stat, want)
		}
	}
	if info, err := os.Stat(filepath.Join(root, "d")); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("directory: %v %v", info, err)
	}
	bad := file("f", "")
	bad.Uid = 1<<32 - 1
	bad.Format = tar.FormatPAX
	if _, _, err := unpack(t, layer.DefaultLimits, archive(t, bad)); fault.CodeOf(err) != layer.CodeRefused {
		t.Errorf("entry with an owner that is no user: got %v", err)
	}
}

func TestApplyEnforcesLimits(t *testing.T) {
	small := layer.Limits{Entries: 100, Bytes: 1 << 20}
	var many []tar.Header
	for i := range 101 {
		many = append(many, file("f"+strings.Repeat("x", i), ""))
	}
	if _, _, err := unpack(t, small, archive(t, many...)); fault.CodeOf(err) != layer.CodeTooLarge {
		t.Errorf("many files: got %v, want %s", err, layer.CodeTooLarge)
	}
	if _, _, err := unpack(t, small, archive(t, many[:60]...), archive(t, many[:60]...)); fault.CodeOf(err) != layer.CodeTooLarge {
		t.Errorf("many files in two layers: got %v, want %s", err, layer.CodeTooLarge)
	}
	big := file("big", strings.Repeat("\x00", 1<<20+1))
	if _, _, err := unpack(t, small, archive(t, big)); fault.CodeOf(err) != layer.CodeTooLarge {
		t.Errorf("large file: got %v, want %s", err, layer.CodeTooLarge)
	}
	// A gigabyte of zeros after the end of the archive.
	tree, err := layer.Open(t.TempDir(), small)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	tail := io.MultiReader(bytes.NewReader(archive(t, file("f", ""))), io.LimitReader(zeros{}, 1<<30))
	if err := tree.Apply(t.Context(), tail); fault.CodeOf(err) != layer.CodeTooLarge {
		t.Errorf("large padding: got %v, want %s", err, layer.CodeTooLarge)
	}
	if _, _, err := unpack(t, small, archive(t, many[:50]...)); err != nil {
		t.Errorf("layer within the limits: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestApplyRejectsBrokenArchive(t *testing.T) {
	complete := archive(t, file("f", strings.Repeat("content ", 1000)))
	for name, data := range map[string][]byte{"cut in the content": complete[:2000], "noise": bytes.Repeat([]byte("noise"), 500)} {
		if _, _, err := unpack(t, layer.DefaultLimits, data); fault.CodeOf(err) != layer.CodeRefused {
			t.Errorf("%s: unpack: error %v", name, err)
		}
	}
}

func TestUncompress(t *testing.T) {
	plain := archive(t, file("f", "content"))
	var zipped, zstdData bytes.Buffer
	g := gzip.NewWriter(&zipped)
	z, err := zstd.NewWriter(&zstdData)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{g, z} {
		if _, err := w.Write(plain); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string][]byte{"none": plain, "gzip": zipped.Bytes(), "zstd": zstdData.Bytes()} {
		r, err := layer.Uncompress(bytes.NewReader(data))
		if err != nil {
			t.Errorf("%s: Uncompress: error %v", name, err)
			continue
		}
		got, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%s: Uncompress: got %d bytes, error %v", name, len(got), err)
		}
	}
}

func TestRemoveTreeRemovesInaccessibleDirectories(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	for _, d := range []string{"a/b/c", "a/d"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"a/b/c", "a/b", "a"} {
		if err := os.Chmod(filepath.Join(root, d), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := layer.RemoveTree(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func FuzzApply(f *testing.F) {
	f.Add(archive(f, dir("d"), file("d/f", "x"), symlink("l", "../d"), hardlink("h", "d/f")), archive(f, file("d/.wh.f", ""), file("d/.wh..wh..opq", "")))
	f.Add(archive(f, file("../beside", "mine")), archive(f, symlink("up", "/.."), file("up/beside", "mine")))
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeChar, Name: "dev", Devmajor: 1}), []byte{})
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		root, counts, err := unpack(t, layer.Limits{Entries: 200, Bytes: 1 << 20}, lower, upper)
		if counts.Bytes > 1<<20 || counts.Entries > 201 {
			t.Errorf("unpacked %+v", counts)
		}
		if err != nil {
			return
		}
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return fs.SkipDir // a mode that denies this user access
			}
			if strings.HasPrefix(path, filepath.Join(root, layer.Reserved)) {
				t.Errorf("%s was created in the reserved directory", path)
			}
			info, err := d.Info()
			if err != nil || d.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0 || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
				t.Errorf("Info(%s): got %v, error %v", path, info, err)
			}
			return nil
		})
	})
}
