package build_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/build"
	"github.com/crannog/crannog/internal/build/solve"
	"github.com/crannog/crannog/internal/fault"
)

// contextOf returns a tar of headers. Files have their name as content.
func contextOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(h.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A client may upload any bytes as its context. None of them reaches a file outside of the build,
// and the build ends with an error of the client and leaves nothing.
func TestHostileContextLeavesNothing(t *testing.T) {
	r := openService(t, t.TempDir())
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	hard := func(name, to string) tar.Header { return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to} }
	up := strings.Repeat("../", 40)
	run := func(data []byte) error {
		record, _, err := r.Create(t.Context(), local, build.Request{Tag: "app:1", Dockerfile: []byte("FROM scratch\nCOPY . /all/\n")})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Upload(t.Context(), local, record.ID, 0, data); err != nil {
			t.Fatal(err)
		}
		_, err = r.Run(t.Context(), local, record.ID, func(solve.Event) {})
		return err
	}
	// The control: names and trees that are unusual and valid.
	if err := run(contextOf(t, file("f"), file("ctrl\x01\n\x1b[2J"), file("bytes\xff"), link("l", "f"), link("broken", "/nowhere"), hard("h", "f"), file(strings.Repeat("d/", 100)+"f"))); err != nil {
		t.Fatalf("a valid context: %v", err)
	}
	// A header that states 8 EiB, without that content.
	huge := contextOf(t, file("f"))
	copy(huge[124:136], append([]byte{0x80, 0, 0, 0, 0x7f}, bytes.Repeat([]byte{0xff}, 7)...))
	sum := 0
	copy(huge[148:156], "        ")
	for _, c := range huge[:512] {
		sum += int(c)
	}
	copy(huge[148:156], []byte{byte('0' + sum>>15&7), byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7), byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
	for what, data := range map[string][]byte{
		"a path out of the directory": contextOf(t, file(up+outside)),
		"an absolute path":            contextOf(t, file(outside)),
		"a file through a link":       contextOf(t, link("l", filepath.Dir(outside)), file("l/outside")),
		"a file over a link":          contextOf(t, link("l", outside), file("l")),
		"a directory over a link":     contextOf(t, link("l", filepath.Dir(outside)), tar.Header{Typeflag: tar.TypeDir, Name: "l/", Mode: 0o777}, file("l/outside")),
		"a hard link out":             contextOf(t, hard("h", outside), file("h")),
		"a hard link through a link":  contextOf(t, link("l", filepath.Dir(outside)), hard("h", "l/outside")),
		"a character device":          contextOf(t, tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3}),
		"a block device":              contextOf(t, tar.Header{Typeflag: tar.TypeBlock, Name: "disk", Devmajor: 8}),
		"a pipe":                      contextOf(t, tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"}),
		"a file of 8 EiB":             huge,
		"a deep path":                 contextOf(t, file(strings.Repeat("d/", 3000)+"f")),
		"a long name":                 contextOf(t, file(strings.Repeat("n", 300))),
		"a name twice":                contextOf(t, file("f"), file("f")),
		"a file as a directory":       contextOf(t, file("f"), file("f/g")),
		"an incomplete archive":       contextOf(t, file(strings.Repeat("n", 90)))[:550],
		"no archive":                  bytes.Repeat([]byte("x"), 2000),
	} {
		err := run(data)
		if kind := fault.KindOf(err); kind != fault.Invalid && kind != fault.Exhausted {
			t.Errorf("%s: got %v of the kind %v, want Invalid or Exhausted", what, err, kind)
		}
		if strings.ContainsAny(fault.PublicText(err), "\x1b\n") {
			t.Errorf("%s: the error has control characters: %q", what, fault.PublicText(err))
		}
		if got, err := os.ReadFile(outside); err != nil || string(got) != "untouched" {
			t.Fatalf("%s: the file outside has %q, error %v", what, got, err)
		}
		if n := r.leftovers(t); n != 0 {
			t.Errorf("%s: %d files are left", what, n)
		}
	}
	// COPY of a link that leads out copies the link, and not what it leads to.
	if err := run(contextOf(t, link("out", outside))); err != nil {
		t.Errorf("a link out of the directory: %v", err)
	}
	record, _, err := r.Create(t.Context(), local, build.Request{Tag: "app:1", Dockerfile: []byte("FROM scratch\nCOPY out /x\n")})
	if err == nil {
		err = r.Upload(t.Context(), local, record.ID, 0, contextOf(t, link("out", outside)))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run(t.Context(), local, record.ID, func(solve.Event) {}); fault.KindOf(err) != fault.Invalid && fault.KindOf(err) != fault.NotFound {
		t.Errorf("COPY of a link that leads out: got %v, want an error", err)
	}
	if _, err := os.Lstat(filepath.Join(r.dir, "work")); errors.Is(err, os.ErrNotExist) || r.leftovers(t) != 0 {
		t.Errorf("%d files are left, error %v", r.leftovers(t), err)
	}
}
