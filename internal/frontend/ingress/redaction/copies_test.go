package redaction

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/filetree/copytree"
)

// TestF9CopiesAreRedacted checks that a value is redacted in names, in targets of links and across
// the pieces of a file, and that every other byte stays at its offset.
func TestF9CopiesAreRedacted(t *testing.T) {
	const nameValue = "tk-name-9dQ7wE5r"
	mask := testMask(t, nameValue, sealedValue)
	half := len(sealedValue) / 2
	var in bytes.Buffer
	w := copytree.NewWriter(&in)
	for _, err := range []error{
		w.Entry(copytree.Entry{Kind: copytree.Dir, Name: "d"}),
		w.Entry(copytree.Entry{Kind: copytree.Link, Name: "l-" + nameValue, Target: "/x/" + sealedValue}),
		w.Entry(copytree.Entry{Kind: copytree.File, Name: "f", Size: 10_000}),
		w.Data(0, []byte("a"+sealedValue[:half])), w.Data(int64(1+half), []byte(sealedValue[half:]+"b")),
		w.Data(5000, []byte("c"+sealedValue[:half])), w.Data(9000, []byte(sealedValue[half:])),
		w.End(), w.Entry(copytree.Entry{Kind: copytree.File, Name: "g", Size: 3}), w.Data(0, []byte("end")), w.End(), w.End(), w.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	out, err := io.ReadAll(newCopies(bytes.NewReader(in.Bytes()), mask.Bytes))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(out, []byte(sealedValue)) {
		t.Error("the redacted copy contains the value")
	}
	files := map[string][]byte{}
	var link copytree.Entry
	var file string
	for r := copytree.NewReader(bytes.NewReader(out)); ; {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case f.Entry != nil && f.Entry.Kind == copytree.Link:
			link = *f.Entry
		case f.Entry != nil && f.Entry.Kind == copytree.File:
			file = f.Entry.Name
			files[file] = make([]byte, f.Entry.Size)
		case f.Data != nil:
			copy(files[file][f.Offset:], f.Data)
		}
	}
	stars := len(sealedValue)
	if f := files["f"]; string(f[:2+stars]) != "a"+string(mask.Bytes().Bytes([]byte(sealedValue)))+"b" ||
		f[5000] != 'c' || string(f[9000:9000+stars-half]) != sealedValue[half:] {
		t.Errorf("got %q, %q and %q", f[:2+stars], f[5000], f[9000:9000+stars-half])
	}
	if string(files["g"]) != "end" || strings.Contains(link.Name, nameValue) || strings.Contains(link.Target, sealedValue) || !strings.HasPrefix(link.Target, "/x/") {
		t.Errorf("got %q and %+v", files["g"], link)
	}
	// A truncated stream stays truncated, and an error inside is redacted too.
	if _, err := io.ReadAll(newCopies(bytes.NewReader(in.Bytes()[:in.Len()-1]), mask.Bytes)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("truncated stream: got %v, want io.ErrUnexpectedEOF", err)
	}
	in.Reset()
	if err := copytree.NewWriter(&in).Fail("no " + sealedValue); err != nil {
		t.Fatal(err)
	}
	out, err = io.ReadAll(newCopies(&in, mask.Bytes))
	var sourceErr *copytree.SourceError
	if _, _, first := copytree.First(copytree.NewReader(bytes.NewReader(out))); err != nil || !errors.As(first, &sourceErr) || strings.Contains(sourceErr.Text, sealedValue) {
		t.Errorf("got %v and %v", err, sourceErr)
	}
}
