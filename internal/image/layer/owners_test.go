package layer_test

import (
	"archive/tar"
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/filetree/fileowners"
	"github.com/crannog/crannog/internal/image/layer"
)

// withOwner returns an entry with an owner and a mode.
func withOwner(h tar.Header, uid, gid int, mode int64) tar.Header {
	h.Uid, h.Gid, h.Mode = uid, gid, mode
	return h
}

// owners unpacks layers and returns the table.
func owners(t *testing.T, layers ...[]byte) fileowners.Table {
	t.Helper()
	tree, err := layer.Open(t.TempDir(), layer.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for _, l := range layers {
		if err := tree.Apply(t.Context(), bytes.NewReader(l)); err != nil {
			t.Fatal(err)
		}
	}
	table, err := tree.Owners()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestOwnersTable(t *testing.T) {
	for what, test := range map[string]struct {
		layers [][]byte
		want   fileowners.Table
	}{
		"all files of root": {[][]byte{archive(t, dir("usr/"), file("usr/x", "x"))}, fileowners.Table{}},
		"set-id programs": {
			[][]byte{archive(t, withOwner(file("su", "x"), 0, 0, 0o4755), withOwner(file("write", "x"), 0, 5, 0o2755), withOwner(symlink("l", "su"), 0, 0, 0o6777))},
			fileowners.Table{"/su": {SetID: 0o4000}, "/write": {GID: 5, SetID: 0o2000}},
		},
		"one entry for a whole directory": {
			[][]byte{archive(t, withOwner(dir("home/a/"), 7, 8, 0o2755), withOwner(file("home/a/x", ""), 7, 8, 0o644), withOwner(dir("home/a/b/"), 7, 8, 0o755), withOwner(file("home/a/b/y", ""), 7, 8, 0o644), withOwner(file("home/a/roots", ""), 0, 0, 0o644))},
			fileowners.Table{"/home/a": {UID: 7, GID: 8, SetID: 0o2000}, "/home/a/roots": {}},
		},
		"the set-user-ID bit of a directory is ignored": {[][]byte{archive(t, withOwner(dir("d/"), 0, 0, 0o4755))}, fileowners.Table{}},
		"a later layer decides": {
			[][]byte{
				archive(t, withOwner(dir("d/"), 7, 7, 0o755), withOwner(file("d/x", ""), 7, 7, 0o4755), withOwner(file("d/gone", ""), 9, 9, 0o644)),
				archive(t, withOwner(dir("d/"), 0, 0, 0o755), file("d/.wh.gone", "")),
				archive(t, withOwner(file("d/x", ""), 3, 3, 0o755), file("d/gone", "")),
			},
			fileowners.Table{"/d/x": {UID: 3, GID: 3}},
		},
		"a removed directory": {
			[][]byte{archive(t, withOwner(dir("d/"), 7, 7, 0o755), withOwner(file("d/x", ""), 7, 7, 0o4755)), archive(t, file(".wh.d", "")), archive(t, file("d/x", ""))},
			fileowners.Table{},
		},
		"both names of a file": {
			[][]byte{archive(t, withOwner(file("su", "x"), 4, 4, 0o4755), hardlink("bin/sudo", "su"))},
			fileowners.Table{"/su": {UID: 4, GID: 4, SetID: 0o4000}, "/bin/sudo": {UID: 4, GID: 4, SetID: 0o4000}},
		},
		"a name through a link": {
			[][]byte{archive(t, dir("usr/bin/"), symlink("bin", "usr/bin"), withOwner(file("bin/su", "x"), 0, 0, 0o4755))},
			fileowners.Table{"/usr/bin/su": {SetID: 0o4000}},
		},
	} {
		if got := owners(t, test.layers...); !maps.Equal(got, test.want) {
			t.Errorf("%s: got owners %v, want %v", what, got, test.want)
		}
	}
}

func TestAppendFileKeepsOwner(t *testing.T) {
	root := t.TempDir()
	tree, err := layer.Open(root, layer.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if err := tree.Apply(t.Context(), bytes.NewReader(archive(t, dir("etc/"), withOwner(file("etc/real", "a"), 0, 42, 0o640), symlink("etc/shadow", "/etc/real"), symlink("etc/out", "/../../../../../../etc/passwd")))); err != nil {
		t.Fatal(err)
	}
	if err := tree.AppendFile("etc/shadow", []byte("b")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(root, "etc/real"))
	if err != nil || info.Mode().Perm() != 0o640 || info.Size() != 2 {
		t.Errorf("Stat: got %v, error %v", info, err)
	}
	if table, err := tree.Owners(); err != nil || table["/etc/real"].GID != 42 {
		t.Errorf("Owners: got %v, error %v", table, err)
	}
	for _, name := range []string{"etc/none", "etc/out", "etc"} {
		if err := tree.AppendFile(name, []byte("b")); err == nil {
			t.Errorf("%s was written", name)
		}
	}
}
