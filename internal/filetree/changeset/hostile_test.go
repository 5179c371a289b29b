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

func sumOf(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

func file(name, text string) changeset.Change {
	return changeset.Change{Path: name, Op: changeset.Created, New: &changeset.Entry{Path: name, Type: changeset.Regular, Mode: 0o644, Size: int64(len(text)), Sum: sumOf(text)}}
}

// member is one header of a hostile archive, with its content.
type member struct {
	h    tar.Header
	text string
}

func regular(name, text string) member {
	return member{tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(text)), Mode: 0o644}, text}
}

func theEnd(count string) member {
	return member{h: tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{changeset.PackEnd: count}}}
}

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

// P36: whatever a sandbox sends as its files, only the requested files are created, at our path and
// with our mode.
func TestExtractTakesNothingElse(t *testing.T) {
	want := []changeset.Change{file("a", "AAAA"), {Path: "dir", Op: changeset.Created, New: &changeset.Entry{Type: changeset.Dir, Mode: 0o755}}, file("dir/b", "BB")}
	a, b := regular("a", "AAAA"), regular("dir/b", "BB")
	link := func(kind byte, name, target string) member {
		return member{h: tar.Header{Typeflag: kind, Name: name, Linkname: target}}
	}
	setuid := a
	setuid.h.Mode = 0o6777
	good := archive(t, a, b, theEnd("2"))
	for what, c := range map[string]struct {
		data []byte
		code string
	}{
		"the control":           {good, ""},
		"setuid bits":           {archive(t, setuid, b, theEnd("2")), ""}, // which are ignored
		"an absolute name":      {archive(t, regular("/etc/passwd", "x"), theEnd("1")), "pack_malformed"},
		"a name upwards":        {archive(t, regular("../../x", "x"), theEnd("1")), "pack_malformed"},
		"a name that is ours":   {archive(t, regular("0", "x"), theEnd("1")), "pack_malformed"},
		"another name":          {archive(t, regular("A", "AAAA"), b, theEnd("2")), "pack_malformed"},
		"an unclean name":       {archive(t, regular("./a", "AAAA"), b, theEnd("2")), "pack_malformed"},
		"a directory":           {archive(t, member{h: tar.Header{Typeflag: tar.TypeDir, Name: "dir/"}}, theEnd("1")), "pack_malformed"},
		"a link":                {archive(t, link(tar.TypeSymlink, "a", "/etc/passwd"), b, theEnd("2")), "pack_malformed"},
		"a hard link":           {archive(t, link(tar.TypeLink, "a", "/etc/passwd"), b, theEnd("2")), "pack_malformed"},
		"a device":              {archive(t, link(tar.TypeBlock, "a", ""), b, theEnd("2")), "pack_malformed"},
		"a pipe":                {archive(t, link(tar.TypeFifo, "a", ""), b, theEnd("2")), "pack_malformed"},
		"twice":                 {archive(t, a, a, b, theEnd("3")), "pack_malformed"},
		"another order":         {archive(t, b, a, theEnd("2")), "pack_malformed"},
		"other bytes":           {archive(t, regular("a", "AAAX"), b, theEnd("2")), "changes_moved"},
		"a longer file":         {archive(t, regular("a", "AAAAA"), b, theEnd("2")), "changes_moved"},
		"a missing file":        {archive(t, a, theEnd("1")), "changes_moved"},
		"nothing":               {archive(t, theEnd("0")), "changes_moved"},
		"no end":                {archive(t, a, b), "pack_cut"},
		"an end that lies":      {archive(t, a, b, theEnd("3")), "pack_malformed"},
		"something behind":      {archive(t, a, b, theEnd("2"), a), "pack_malformed"},
		"cut in a file":         {good[:700], "pack_cut"},
		"cut before a file":     {good[:512], "pack_cut"},
		"no archive":            {[]byte(strings.Repeat("x", 2048)), "pack_malformed"},
		"empty":                 {nil, "pack_cut"},
		"a huge file announced": {bytes.Replace(good, []byte("00000000004\x00"), []byte("77777777777\x00"), 1), "pack_malformed"},
	} {
		dir := t.TempDir()
		into, err := os.OpenRoot(filepath.Join(dir))
		if err != nil {
			t.Fatal(err)
		}
		_, err = changeset.Extract(bytes.NewReader(c.data), into, want, nil, changeset.Bounds{})
		if got := fault.CodeOf(err); got != c.code && (c.code != "" || err != nil) {
			t.Errorf("%s: %v, want %q", what, err, c.code)
		}
		for name, text := range describeTree(t, dir, false) {
			if name != "0" && name != "2" || !strings.HasPrefix(text, "-rw------- ") {
				t.Errorf("%s: there is %q: %s", what, name, text)
			}
		}
		into.Close()
	}
}

func TestExtractIsBounded(t *testing.T) {
	zeros := strings.Repeat("\x00", 1<<20)
	want := []changeset.Change{file("a", zeros), file("b", zeros)}
	data := archive(t, regular("a", zeros), regular("b", zeros), theEnd("2"))
	dir := t.TempDir()
	into, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	for _, b := range []changeset.Bounds{{FileBytes: 1<<20 - 1}, {Bytes: 2<<20 - 1}} {
		_, err := changeset.Extract(bytes.NewReader(data), into, want, nil, b)
		if fault.CodeOf(err) != "changes_too_large" {
			t.Errorf("Extract(%+v): error %v", b, err)
		}
		for _, n := range []string{"0", "1"} {
			_ = into.Remove(n)
		}
	}
	if _, err := changeset.Extract(bytes.NewReader(data), into, want, nil, changeset.Bounds{}); err != nil {
		t.Errorf("the control: %v", err)
	}
}

// Holes cost a sandbox nothing, and use no disk space of the host either.
func TestHolesStayHoles(t *testing.T) {
	b := newBench(t, nil)
	put(t, filepath.Join(b.inside, "sparse"), "x")
	if err := os.Truncate(filepath.Join(b.inside, "sparse"), 64<<20); err != nil {
		t.Fatal(err)
	}
	set := b.compare(t)
	if _, err := b.apply(t, set.Changes, false); err != nil {
		t.Fatal(err)
	}
	if got := blocks(t, filepath.Join(b.host, "sparse")); got > 1<<20 {
		t.Errorf("it takes %d bytes", got)
	}
}

func list(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

// P36: an answer that is not exactly a list of files below a directory is rejected.
func TestReadTreeRefusesWhatIsNoTree(t *testing.T) {
	entry := func(path string) string { return fmt.Sprintf(`{"path":%q,"type":"file","mode":420}`, path) }
	for what, text := range map[string]string{
		"cut":               list(entry("a")),
		"cut in a line":     list(entry("a")) + `{"end":true,"co`,
		"a wrong count":     list(entry("a"), `{"end":true,"count":2}`),
		"something behind":  list(entry("a"), `{"end":true,"count":1}`, entry("b")),
		"twice":             list(entry("a"), entry("a"), `{"end":true,"count":2}`),
		"absolute":          list(entry("/etc/passwd"), `{"end":true,"count":1}`),
		"upwards":           list(entry("../x"), `{"end":true,"count":1}`),
		"upwards within":    list(entry("a/../../x"), `{"end":true,"count":1}`),
		"the top":           list(entry("."), `{"end":true,"count":1}`),
		"no name":           list(`{"type":"file"}`, `{"end":true,"count":1}`),
		"an unclean name":   list(entry("a//b"), `{"end":true,"count":1}`),
		"NUL":               list(`{"path":"a\u0000b","type":"file"}`, `{"end":true,"count":1}`),
		"two names":         list(`{"path":"a","raw":"Yg==","type":"file"}`, `{"end":true,"count":1}`),
		"an unknown type":   list(`{"path":"a","type":"door"}`, `{"end":true,"count":1}`),
		"an unknown field":  list(`{"path":"a","type":"file","owner":0}`, `{"end":true,"count":1}`),
		"a strange mode":    list(`{"path":"a","type":"file","mode":32768}`, `{"end":true,"count":1}`),
		"a negative size":   list(`{"path":"a","type":"file","size":-1}`, `{"end":true,"count":1}`),
		"a strange sum":     list(`{"path":"a","type":"file","sum":"../../x"}`, `{"end":true,"count":1}`),
		"a target":          list(`{"path":"a","type":"file","target":"x"}`, `{"end":true,"count":1}`),
		"a link to nowhere": list(`{"path":"a","type":"link"}`, `{"end":true,"count":1}`),
		"too deep":          list(entry(strings.Repeat("a/", 300)+"b"), `{"end":true,"count":1}`),
		"a long line":       list(`{"path":"` + strings.Repeat("a", 1<<20) + `"}`),
		"not JSON":          "<html>\n",
		"two in a line":     list(entry("a")+entry("b"), `{"end":true,"count":2}`),
	} {
		if all, err := changeset.ReadTree(strings.NewReader(text), changeset.Bounds{}); err == nil {
			t.Errorf("%s: ReadTree: got %+v", what, all)
		} else if code := fault.CodeOf(err); code != "tree_malformed" && code != "tree_cut" {
			t.Errorf("%s: ReadTree: error %v", what, err)
		}
	}
	three := list(entry("a"), entry("b"), entry("c"), `{"end":true,"count":3}`)
	if _, err := changeset.ReadTree(strings.NewReader(three), changeset.Bounds{Files: 2}); fault.CodeOf(err) != "tree_too_large" {
		t.Errorf("too many: %v", err)
	}
	if all, err := changeset.ReadTree(strings.NewReader(three), changeset.Bounds{Files: 3}); err != nil || len(all) != 3 {
		t.Errorf("the control: %+v, %v", all, err)
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
		// A tree that was read can be written, and then reads as the same tree.
		var b bytes.Buffer
		out := changeset.NewEncoder(&b)
		for i, e := range all {
			if !filepath.IsLocal(e.Path) || filepath.Clean(e.Path) != e.Path || i > 0 && all[i-1].Path >= e.Path {
				t.Fatalf("the path %q", e.Path)
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
			t.Fatalf("ReadTree: error %v, got %v, %v", err, all, again)
		}
	})
}

func FuzzExtract(f *testing.F) {
	want := []changeset.Change{file("a", "AAAA"), file("dir/b", "BB"), file("\xff", "")}
	f.Add(archive(f, regular("a", "AAAA"), regular("dir/b", "BB"), theEnd("2")))
	f.Add(archive(f, regular("../a", "AAAA"), theEnd("1")))
	f.Add(archive(f, member{h: tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/"}}, theEnd("1")))
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
				t.Fatalf("there is %q: %s", name, text)
			}
		}
		if err == nil {
			if text, err := into.ReadFile("0"); err != nil || string(text) != "AAAA" {
				t.Fatalf("ReadFile: got %q, error %v", text, err)
			}
		}
		if others, err := os.ReadDir(dir); err != nil || len(others) != 1 {
			t.Fatalf("beside it: %v, %v", others, err)
		}
	})
}
