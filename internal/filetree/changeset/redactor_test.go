package changeset_test

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
)

// rotated is a secret of the same length as sealed.
const (
	sealed  = "tk-sealed-Zr8qP2mW4x"
	rotated = "tk-sealed-Lx4vB9cd7y"
)

// hides redacts as a service redacts a sandbox's files.
func hides(t testing.TB) changeset.RedactorOf {
	t.Helper()
	values := []redact.Value{{Name: "KEY", Data: []byte(sealed)}, {Name: "KEY", Data: []byte(rotated)}}
	r, err := redact.New(values, redact.Options{SameLength: true})
	if err != nil {
		t.Fatal(err)
	}
	return func() changeset.Redactor { return r }
}

// holders are files that contain the secret, each in one form. The larger ones have it at the
// borders of the chunks that are read, redacted and written.
func holders() map[string]string {
	files := map[string]string{
		"raw":    "key = " + sealed + "\n",
		"base64": base64.StdEncoding.EncodeToString([]byte("xy"+sealed+"z")) + "\n",
		"hex":    hex.EncodeToString([]byte(sealed)) + "\n",
		"binary": "\x00\xff" + sealed + "\x00",
		"end":    "ends with " + sealed,
	}
	for name, border := range map[string]int{"block": 4 << 10, "read": 32 << 10, "buffer": 256 << 10, "second": 512 << 10} {
		b := bytes.Repeat([]byte{'.'}, border+4096)
		copy(b[border-len(sealed)/2:], sealed)
		files["border "+name] = string(b)
	}
	return files
}

// shows reports whether a text contains the secret in one of its forms, or its second half, which
// chunk by chunk redaction would leave.
func shows(text string) bool {
	b64 := base64.StdEncoding.EncodeToString([]byte("xy" + sealed + "z"))
	return strings.Contains(text, sealed[len(sealed)/2:]) || strings.Contains(text, hex.EncodeToString([]byte(sealed))) || strings.Contains(text, b64[4:len(b64)-4])
}

func untar(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	files := map[string]string{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

// P44: no command exports a secret in any form. Lengths are preserved, and checksums are those of
// the written content. The control is the same without redaction.
func TestWhatMustNotBeSeenDoesNotComeOut(t *testing.T) {
	for name, hide := range map[string]changeset.RedactorOf{"masked": hides(t), "control": nil} {
		t.Run(name, func(t *testing.T) {
			files := holders()
			b := newBench(t, map[string]string{"plain": "1\n"})
			b.source.hide = hide
			writeTree(t, b.inside, files)
			put(t, filepath.Join(b.inside, "plain"), "2\n")
			set := b.compare(t)
			masked := hide != nil
			for _, c := range set.Changes {
				if c.Has(changeset.Masked) != (masked && c.Path != "plain") {
					t.Errorf("%s: flags %v", c.Path, c.Flags)
				}
				if !c.Binary && !c.Omitted && c.Path != "plain" && shows(c.Text) == masked {
					t.Errorf("the text of %s: %.200q", c.Path, c.Text)
				}
			}
			digest := set.Digest
			staged := b.stage(t, set)
			if changeset.Digest(set.Changes) == digest == masked {
				t.Error("the sums of what came are those of what is inside, or the other way round")
			}
			var archive, patch bytes.Buffer
			if err := changeset.WriteTar(&archive, staged, set.Changes); err != nil {
				t.Fatal(err)
			}
			left, err := changeset.WritePatch(t.Context(), &patch, staged, b.base, set.Changes, b.source.Redactor, changeset.Bounds{})
			if err != nil || len(left) != 1 || left[0].Path != "binary" || shows(patch.String()) == masked {
				t.Errorf("patch: %v %+v, shows the value: %v", err, left, shows(patch.String()))
			}
			come := map[string]string{}
			var ready []changeset.Change
			_, err = changeset.Apply(t.Context(), b.source, b.root, b.compare(t).Changes, changeset.ApplyOptions{
				Dir: "/workspace", Journals: b.journals, Ready: func(list []changeset.Change) error { ready = list; return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			for name := range files {
				text, err := os.ReadFile(filepath.Join(b.host, name))
				if err != nil {
					t.Fatal(err)
				}
				come[name] = string(text)
			}
			archived := untar(t, &archive)
			for name, inside := range files {
				if archived[name] != come[name] || len(come[name]) != len(inside) || shows(come[name]) == masked {
					t.Errorf("%s: %d bytes of %d came, shows the value: %v", name, len(come[name]), len(inside), shows(come[name]))
				}
			}
			for _, list := range [][]changeset.Change{ready, set.Changes} {
				for _, c := range list {
					if c.Path != "plain" && c.New.Sum != sumOf(come[c.Path]) {
						t.Errorf("the sum of %s is not that of what came", c.Path)
					}
				}
			}
		})
	}
}

// A change after the listing is detected by the original content, because two secrets look the same
// after redaction.
func TestMaskedFilesAreCheckedFirst(t *testing.T) {
	b := newBench(t, nil)
	b.source.hide = hides(t)
	writeTree(t, b.inside, map[string]string{"a": sealed})
	list := b.compare(t).Changes
	if _, err := b.apply(t, list, false); err != nil {
		t.Fatalf("control: %v", err)
	}
	remove(t, filepath.Join(b.host, "a"))
	b.source.packing = func() { put(t, filepath.Join(b.inside, "a"), rotated) }
	if _, err := b.apply(t, list, false); fault.CodeOf(err) != "changes_moved" {
		t.Errorf("apply: error %v", err)
	}
}

// P44: a file whose name or link target contains a secret stays inside, and its name is redacted
// where it is shown.
func TestNamesThatMustNotBeSeenStayInside(t *testing.T) {
	b := newBench(t, map[string]string{"a": "1"})
	b.source.hide = hides(t)
	writeTree(t, b.inside, map[string]string{
		"a": "2", sealed: "1", "dir-" + sealed + "/b": "1", "link": "-> " + sealed,
		"hex-" + hex.EncodeToString([]byte(sealed)): "1", sealed[:10]: "a name that only begins like it",
	})
	set := b.compare(t)
	var refused []string
	for _, c := range set.Changes {
		if shown := c.Shown(b.source.Redactor); shows(shown.Path + shown.New.Path + shown.New.Target + shown.Text) {
			t.Errorf("%q is shown", shown.Path)
		}
		if c.Refused() {
			refused = append(refused, c.Path)
		}
	}
	if len(refused) != 5 || slices.Contains(refused, sealed[:10]) {
		t.Errorf("stay inside: %q", refused)
	}
	if _, err := b.apply(t, set.Changes, true); fault.CodeOf(err) != "changes_refused" {
		t.Errorf("asked for all the same: %v", err)
	}
	chosen, _ := changeset.Select(set.Changes, func(changeset.Change) bool { return true })
	if _, err := b.apply(t, chosen, false); err != nil {
		t.Fatal(err)
	}
	if got := describeTree(t, b.host, false); len(got) != 2 {
		t.Errorf("there is %q", got)
	}
}

// The host's own copy of a secret is not replaced unless that is requested, and no patch is written
// that would contain it.
func TestAValueOutsideIsNotReplacedUnasked(t *testing.T) {
	b := newBench(t, map[string]string{"config": "key " + sealed + "\n1\n", "other": "1\n"})
	b.source.hide = hides(t)
	writeTree(t, b.inside, map[string]string{"config": "key " + sealed + "\n2\n", "other": "key " + sealed + "\n"})
	set := b.compare(t)
	if got := short(set); !slices.Equal(got, []string{"changed config secret_outside masked", "changed other masked"}) {
		t.Fatalf("short: got %q", got)
	}
	if strings.Contains(set.Changes[0].Text, sealed) || !strings.Contains(set.Changes[0].Text, "-1\n+2\n") {
		t.Errorf("compare: got %q", set.Changes[0].Text)
	}
	if _, err := b.apply(t, set.Changes, false); fault.CodeOf(err) != "changes_conflict" {
		t.Errorf("apply: error %v", err)
	}
	var patch bytes.Buffer
	staged := b.stage(t, set)
	left, err := changeset.WritePatch(t.Context(), &patch, staged, b.base, set.Changes, b.source.Redactor, changeset.Bounds{})
	if err != nil || len(left) != 1 || left[0].Path != "config" || strings.Contains(patch.String(), sealed) {
		t.Errorf("WritePatch: error %v, got %+v, %q", err, left, patch.String())
	}
	// A file that was applied once is not in conflict, and can be applied again.
	now, err := b.apply(t, b.compare(t).Changes[1:], false)
	if err != nil {
		t.Fatal(err)
	}
	b.base.Brought = now
	again := b.compare(t)
	if got := short(again); !slices.Equal(got, []string{"changed config secret_outside masked", "changed other masked"}) {
		t.Fatalf("short: got %q", got)
	}
	other := &changeset.Set{Changes: again.Changes[1:]}
	staged = b.stage(t, other)
	patch.Reset()
	if left, err := changeset.WritePatch(t.Context(), &patch, staged, b.base, other.Changes, b.source.Redactor, changeset.Bounds{}); err != nil || len(left) != 0 {
		t.Errorf("WritePatch: error %v, got %+v", err, left)
	}
	if _, err := b.apply(t, again.Changes, true); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(b.host, "config"))
	if err != nil || strings.Contains(string(text), sealed) || !strings.HasSuffix(string(text), "*\n2\n") {
		t.Errorf("ReadFile: got %q, error %v", text, err)
	}
}

// If only the mode of a file was changed, its content outside stays.
func TestAModeBringsNoMask(t *testing.T) {
	b := newBench(t, map[string]string{"script": "echo " + sealed + "\n"})
	b.source.hide = hides(t)
	if err := os.Chmod(filepath.Join(b.inside, "script"), 0o755); err != nil {
		t.Fatal(err)
	}
	var ready []changeset.Change
	_, err := changeset.Apply(t.Context(), b.source, b.root, b.compare(t).Changes, changeset.ApplyOptions{
		Dir: "/workspace", Journals: b.journals, Ready: func(list []changeset.Change) error { ready = list; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(b.host, "script"))
	if err != nil || string(text) != "echo "+sealed+"\n" || len(ready) != 1 || ready[0].Has(changeset.Masked) || ready[0].New.Sum != sumOf(string(text)) {
		t.Errorf("ReadFile: got %q, error %v, %+v", text, err, ready)
	}
}
