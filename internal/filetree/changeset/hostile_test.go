package changeset_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
)

// sumOf returns the SHA-256 of a text in hexadecimal.
func sumOf(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// file returns the creation of a file.
func file(name, text string) changeset.Change {
	return changeset.Change{Path: name, Op: changeset.Created, New: &changeset.Entry{Path: name, Type: changeset.Regular, Mode: 0o644, Size: int64(len(text)), Sum: sumOf(text)}}
}

// member is one header of a hostile archive, with its content.
type member struct {
	h    tar.Header
	text string
}

// regular returns the member for a regular file.
func regular(name, text string) member {
	return member{tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(text)), Mode: 0o644}, text}
}

// endMember returns the last member, with the number of files.
func endMember(count string) member {
	return member{h: tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{changeset.PackEnd: count}}}
}

// archive returns a tar archive with the members.
func archive(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		if err := w.WriteHeader(&m.h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, m.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// P36: regardless of the data that a sandbox sends, Extract creates only the requested files, with
// the names and mode that it chooses.
func TestExtractAcceptsOnlyRequestedFiles(t *testing.T) {
	want := []changeset.Change{file("a", "AAAA"), {Path: "dir", Op: changeset.Created, New: &changeset.Entry{Type: changeset.Dir, Mode: 0o755}}, file("dir/b", "BB")}
	a, b := regular("a", "AAAA"), regular("dir/b", "BB")
	link := func(kind byte, name, target string) member {
		return member{h: tar.Header{Typeflag: kind, Name: name, Linkname: target}}
	}
	setuid := a
	setuid.h.Mode = 0o6777
	good := archive(t, a, b, endMember("2"))
	for what, c := range map[string]struct {
		data []byte
		code string
	}{
		"control":                 {good, ""},
		"setuid bits":             {archive(t, setuid, b, endMember("2")), ""}, // which are ignored
		"an absolute name":        {archive(t, regular("/etc/passwd", "x"), endMember("1")), "pack_malformed"},
		"a name upwards":          {archive(t, regular("../../x", "x"), endMember("1")), "pack_malformed"},
		"a name of a staged file": {archive(t, regular("0", "x"), endMember("1")), "pack_malformed"},
		"another name":            {archive(t, regular("A", "AAAA"), b, endMember("2")), "pack_malformed"},
		"an unclean name":         {archive(t, regular("./a", "AAAA"), b, endMember("2")), "pack_malformed"},
		"a directory":             {archive(t, member{h: tar.Header{Typeflag: tar.TypeDir, Name: "dir/"}}, endMember("1")), "pack_malformed"},
		"a link":                  {archive(t, link(tar.TypeSymlink, "a", "/etc/passwd"), b, endMember("2")), "pack_malformed"},
		"a hard link":             {archive(t, link(tar.TypeLink, "a", "/etc/passwd"), b, endMember("2")), "pack_malformed"},
		"a device":                {archive(t, link(tar.TypeBlock, "a", ""), b, endMember("2")), "pack_malformed"},
		"a pipe":                  {archive(t, link(tar.TypeFifo, "a", ""), b, endMember("2")), "pack_malformed"},
		"twice":                   {archive(t, a, a, b, endMember("3")), "pack_malformed"},
		"another order":           {archive(t, b, a, endMember("2")), "pack_malformed"},
		"other bytes":             {archive(t, regular("a", "AAAX"), b, endMember("2")), "changes_moved"},
		"a longer file":           {archive(t, regular("a", "AAAAA"), b, endMember("2")), "changes_moved"},
		"a missing file":          {archive(t, a, endMember("1")), "changes_moved"},
		"nothing":                 {archive(t, endMember("0")), "changes_moved"},
		"no end":                  {archive(t, a, b), "pack_cut"},
		"a wrong number":          {archive(t, a, b, endMember("3")), "pack_malformed"},
		"a file after the end":    {archive(t, a, b, endMember("2"), a), "pack_malformed"},
		"cut in a file":           {good[:700], "pack_cut"},
		"cut before a file":       {good[:512], "pack_cut"},
		"no archive":              {[]byte(strings.Repeat("x", 2048)), "pack_malformed"},
		"empty":                   {nil, "pack_cut"},
		"a huge size":             {bytes.Replace(good, []byte("00000000004\x00"), []byte("77777777777\x00"), 1), "pack_malformed"},
	} {
		dir := t.TempDir()
		into, err := os.OpenRoot(filepath.Join(dir))
		if err != nil {
			t.Fatal(err)
		}
		_, err = changeset.Extract(bytes.NewReader(c.data), into, want, nil, changeset.Bounds{})
		if got := fault.CodeOf(err); got != c.code && (c.code != "" || err != nil) {
			t.Errorf("%s: Extract: error %v, want code %q", what, err, c.code)
		}
		for name, text := range describeTree(t, dir, false) {
			if name != "0" && name != "2" || !strings.HasPrefix(text, "-rw------- ") {
				t.Errorf("%s: unexpected file %q: %s", what, name, text)
			}
		}
		into.Close()
	}
}

func TestExtractEnforcesLimits(t *testing.T) {
	zeros := strings.Repeat("\x00", 1<<20)
	want := []changeset.Change{file("a", zeros), file("b", zeros)}
	data := archive(t, regular("a", zeros), regular("b", zeros), endMember("2"))
	dir := t.TempDir()
	into, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	for _, b := range []changeset.Bounds{{FileBytes: 1<<20 - 1}, {Bytes: 2<<20 - 1}} {
		_, err := changeset.Extract(bytes.NewReader(data), into, want, nil, b)
		if fault.CodeOf(err) != "changes_too_large" {
			t.Errorf("Extract with the bounds %+v: error %v", b, err)
		}
		for _, n := range []string{"0", "1"} {
			_ = into.Remove(n)
		}
	}
	if _, err := changeset.Extract(bytes.NewReader(data), into, want, nil, changeset.Bounds{}); err != nil {
		t.Errorf("control: Extract: %v", err)
	}
}

// Holes of a file in the sandbox do not use disk space of the host.
func TestApplyKeepsHoles(t *testing.T) {
	b := newTreeTest(t, nil)
	put(t, filepath.Join(b.inside, "sparse"), "x")
	if err := os.Truncate(filepath.Join(b.inside, "sparse"), 64<<20); err != nil {
		t.Fatal(err)
	}
	set := b.compare(t)
	if _, err := b.apply(t, set.Changes, false); err != nil {
		t.Fatal(err)
	}
	if got := diskUsage(t, filepath.Join(b.host, "sparse")); got > 1<<20 {
		t.Errorf("the sparse file uses %d bytes of the disk", got)
	}
}

// list joins the lines of a file list.
func list(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

// P36: an answer that is not exactly a list of files below a directory is rejected.
func TestReadTreeRejectsMalformedLists(t *testing.T) {
	entry := func(path string) string { return fmt.Sprintf(`{"path":%q,"type":"file","mode":420}`, path) }
	for what, text := range map[string]string{
		"cut":                     list(entry("a")),
		"cut in a line":           list(entry("a")) + `{"end":true,"co`,
		"a wrong count":           list(entry("a"), `{"end":true,"count":2}`),
		"a line after the end":    list(entry("a"), `{"end":true,"count":1}`, entry("b")),
		"twice":                   list(entry("a"), entry("a"), `{"end":true,"count":2}`),
		"absolute":                list(entry("/etc/passwd"), `{"end":true,"count":1}`),
		"upwards":                 list(entry("../x"), `{"end":true,"count":1}`),
		"upwards within":          list(entry("a/../../x"), `{"end":true,"count":1}`),
		"the top":                 list(entry("."), `{"end":true,"count":1}`),
		"no name":                 list(`{"type":"file"}`, `{"end":true,"count":1}`),
		"an unclean name":         list(entry("a//b"), `{"end":true,"count":1}`),
		"NUL":                     list(`{"path":"a\u0000b","type":"file"}`, `{"end":true,"count":1}`),
		"two names":               list(`{"path":"a","raw":"Yg==","type":"file"}`, `{"end":true,"count":1}`),
		"an unknown type":         list(`{"path":"a","type":"door"}`, `{"end":true,"count":1}`),
		"an unknown field":        list(`{"path":"a","type":"file","owner":0}`, `{"end":true,"count":1}`),
		"a strange mode":          list(`{"path":"a","type":"file","mode":32768}`, `{"end":true,"count":1}`),
		"a negative size":         list(`{"path":"a","type":"file","size":-1}`, `{"end":true,"count":1}`),
		"a strange sum":           list(`{"path":"a","type":"file","sum":"../../x"}`, `{"end":true,"count":1}`),
		"a target":                list(`{"path":"a","type":"file","target":"x"}`, `{"end":true,"count":1}`),
		"a link without a target": list(`{"path":"a","type":"link"}`, `{"end":true,"count":1}`),
		"too deep":                list(entry(strings.Repeat("a/", 300)+"b"), `{"end":true,"count":1}`),
		"a long line":             list(`{"path":"` + strings.Repeat("a", 1<<20) + `"}`),
		"not JSON":                "<html>\n",
		"two in a line":           list(entry("a")+entry("b"), `{"end":true,"count":2}`),
	} {
		if all, err := changeset.ReadTree(strings.NewReader(text), changeset.Bounds{}); err == nil {
			t.Errorf("%s: ReadTree: got %+v", what, all)
		} else if code := fault.CodeOf(err); code != "tree_malformed" && code != "tree_cut" {
			t.Errorf("%s: ReadTree: error %v", what, err)
		}
	}
	three := list(entry("a"), entry("b"), entry("c"), `{"end":true,"count":3}`)
	if _, err := changeset.ReadTree(strings.NewReader(three), changeset.Bounds{Files: 2}); fault.CodeOf(err) != "tree_too_large" {
		t.Errorf("ReadTree of too many files: error %v, want tree_too_large", err)
	}
	if all, err := changeset.ReadTree(strings.NewReader(three), changeset.Bounds{Files: 3}); err != nil || len(all) != 3 {
		t.Errorf("control: ReadTree: got %+v, error %v", all, err)
	}
}

func FuzzReadTree(f *testing.F) {
	f.Add([]byte(list(`{"path":"a","type":"file","mode":420,"size":3,"mtime":1,"ctime":2}`, `{"raw":"/w==","type":"link","target":"x"}`, `{"end":true,"count":2}`)))
	f.Add([]byte(list(`{"path":"../a","type":"dir"}`, `{"end":true,"count":1}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := changeset.ReadTree(bytes.NewReader(data), changeset.Bounds{Files: 100})
		if err != nil {
			return
		}
		// Writing the tree and reading it again gives the same tree.
		var b bytes.Buffer
		out := changeset.NewEncoder(&b)
		for i, e := range all {
			if !filepath.IsLocal(e.Path) || filepath.Clean(e.Path) != e.Path || i > 0 && all[i-1].Path >= e.Path {
				t.Fatalf("ReadTree: invalid or unsorted path %q", e.Path)
			}
			if err := out.Put(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := changeset.ReadTree(&b, changeset.Bounds{})
		if err != nil || fmt.Sprint(again) != fmt.Sprint(all) {
			t.Fatalf("ReadTree of the written tree: error %v, got %v, want %v", err, again, all)
		}
	})
}

func FuzzExtract(f *testing.F) {
	want := []changeset.Change{file("a", "AAAA"), file("dir/b", "BB"), file("\xff", "")}
	f.Add(archive(f, regular("a", "AAAA"), regular("dir/b", "BB"), endMember("2")))
	f.Add(archive(f, regular("../a", "AAAA"), endMember("1")))
	f.Add(archive(f, member{h: tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/"}}, endMember("1")))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		inner := filepath.Join(dir, "x")
		if err := os.Mkdir(inner, 0o700); err != nil {
			t.Fatal(err)
		}
		into, err := os.OpenRoot(inner)
		if err != nil {
			t.Fatal(err)
		}
		defer into.Close()
		_, err = changeset.Extract(bytes.NewReader(data), into, want, nil, changeset.Bounds{FileBytes: 1 << 20})
		for name, text := range describeTree(t, inner, false) {
			if name != "0" && name != "1" && name != "2" || !strings.HasPrefix(text, "-rw------- ") {
				t.Fatalf("unexpected file %q: %s", name, text)
			}
		}
		if err == nil {
			if text, err := into.ReadFile("0"); err != nil || string(text) != "AAAA" {
				t.Fatalf("ReadFile: got %q, error %v", text, err)
			}
		}
		if others, err := os.ReadDir(dir); err != nil || len(others) != 1 {
			t.Fatalf("files outside of the directory: %v, error %v", others, err)
		}
	})
}
