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

// secret and rotatedSecret are secrets of the same length.
const (
	secret        = "tk-sealed-Zr8qP2mW4x"
	rotatedSecret = "tk-sealed-Lx4vB9cd7y"
)

// newRedactor returns a redactor like that of a service for a sandbox's files.
func newRedactor(t testing.TB) changeset.RedactorOf {
	t.Helper()
	values := []redact.Value{{Name: "KEY", Data: []byte(secret)}, {Name: "KEY", Data: []byte(rotatedSecret)}}
	r, err := redact.New(values, redact.Options{SameLength: true})
	if err != nil {
		t.Fatal(err)
	}
	return func() changeset.Redactor { return r }
}

// filesWithSecret returns files that contain the secret, each in one form. The larger ones have it
// at the borders of the chunks that are read, redacted and written.
func filesWithSecret() map[string]string {
	files := map[string]string{
		"raw":    "key = " + secret + "\n",
		"base64": base64.StdEncoding.EncodeToString([]byte("xy"+secret+"z")) + "\n",
		"hex":    hex.EncodeToString([]byte(secret)) + "\n",
		"binary": "\x00\xff" + secret + "\x00",
		"end":    "ends with " + secret,
	}
	for name, border := range map[string]int{"block": 4 << 10, "read": 32 << 10, "buffer": 256 << 10, "second": 512 << 10} {
		b := bytes.Repeat([]byte{'.'}, border+4096)
		copy(b[border-len(secret)/2:], secret)
		files["border "+name] = string(b)
	}
	return files
}

// containsSecret reports whether a text contains the secret in one of its forms, or its second
// half, which a redaction of separate chunks would leave.
func containsSecret(text string) bool {
	b64 := base64.StdEncoding.EncodeToString([]byte("xy" + secret + "z"))
	return strings.Contains(text, secret[len(secret)/2:]) || strings.Contains(text, hex.EncodeToString([]byte(secret))) || strings.Contains(text, b64[4:len(b64)-4])
}

// untar returns the files of an archive.
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
func TestExportsRedactSecrets(t *testing.T) {
	for name, hide := range map[string]changeset.RedactorOf{"masked": newRedactor(t), "control": nil} {
		t.Run(name, func(t *testing.T) {
			files := filesWithSecret()
			b := newTreeTest(t, map[string]string{"plain": "1\n"})
			b.source.hide = hide
			writeTree(t, b.inside, files)
			put(t, filepath.Join(b.inside, "plain"), "2\n")
			set := b.compare(t)
			masked := hide != nil
			for _, c := range set.Changes {
				if c.Has(changeset.Masked) != (masked && c.Path != "plain") {
					t.Errorf("%s: flags %v", c.Path, c.Flags)
				}
				if !c.Binary && !c.Omitted && c.Path != "plain" && containsSecret(c.Text) == masked {
					t.Errorf("the text of %s has wrong redactions: %.200q", c.Path, c.Text)
				}
			}
			digest := set.Digest
			staged := b.stage(t, set)
			if changeset.Digest(set.Changes) == digest == masked {
				t.Error("the digest changes only if content is redacted: want the opposite")
			}
			var archive, patch bytes.Buffer
			if err := changeset.WriteTar(&archive, staged, set.Changes); err != nil {
				t.Fatal(err)
			}
			left, err := changeset.WritePatch(t.Context(), &patch, staged, b.base, set.Changes, b.source.Redactor, changeset.Bounds{})
			if err != nil || len(left) != 1 || left[0].Path != "binary" || containsSecret(patch.String()) == masked {
				t.Errorf("WritePatch: error %v, left out %+v, contains the secret: %v", err, left, containsSecret(patch.String()))
			}
			applied := map[string]string{}
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
				applied[name] = string(text)
			}
			archived := untar(t, &archive)
			for name, inside := range files {
				if archived[name] != applied[name] || len(applied[name]) != len(inside) || containsSecret(applied[name]) == masked {
					t.Errorf("%s: got %d bytes of %d, contains the secret: %v", name, len(applied[name]), len(inside), containsSecret(applied[name]))
				}
			}
			for _, list := range [][]changeset.Change{ready, set.Changes} {
				for _, c := range list {
					if c.Path != "plain" && c.New.Sum != sumOf(applied[c.Path]) {
						t.Errorf("the sum of %s is not that of the exported content", c.Path)
					}
				}
			}
		})
	}
}

// A change after the listing is detected by the original content, because two secrets look the same
// after redaction.
func TestRedactedFilesAreVerifiedUnredacted(t *testing.T) {
	b := newTreeTest(t, nil)
	b.source.hide = newRedactor(t)
	writeTree(t, b.inside, map[string]string{"a": secret})
	list := b.compare(t).Changes
	if _, err := b.apply(t, list, false); err != nil {
		t.Fatalf("control: %v", err)
	}
	remove(t, filepath.Join(b.host, "a"))
	b.source.packing = func() { put(t, filepath.Join(b.inside, "a"), rotatedSecret) }
	if _, err := b.apply(t, list, false); fault.CodeOf(err) != "changes_moved" {
		t.Errorf("apply: error %v", err)
	}
}

// P44: a file whose name or link target contains a secret stays inside, and its name is redacted
// where it is shown.
func TestNamesWithSecretsAreRefused(t *testing.T) {
	b := newTreeTest(t, map[string]string{"a": "1"})
	b.source.hide = newRedactor(t)
	writeTree(t, b.inside, map[string]string{
		"a": "2", secret: "1", "dir-" + secret + "/b": "1", "link": "-> " + secret,
		"hex-" + hex.EncodeToString([]byte(secret)): "1", secret[:10]: "a name with the beginning of the secret",
	})
	set := b.compare(t)
	var refused []string
	for _, c := range set.Changes {
		if shown := c.Shown(b.source.Redactor); containsSecret(shown.Path + shown.New.Path + shown.New.Target + shown.Text) {
			t.Errorf("%q is shown with the secret", shown.Path)
		}
		if c.Refused() {
			refused = append(refused, c.Path)
		}
	}
	if len(refused) != 5 || slices.Contains(refused, secret[:10]) {
		t.Errorf("refused changes: got %q", refused)
	}
	if _, err := b.apply(t, set.Changes, true); fault.CodeOf(err) != "changes_refused" {
		t.Errorf("Apply of refused changes: got %v, want changes_refused", err)
	}
	chosen, _ := changeset.Select(set.Changes, func(changeset.Change) bool { return true })
	if _, err := b.apply(t, chosen, false); err != nil {
		t.Fatal(err)
	}
	if got := describeTree(t, b.host, false); len(got) != 2 {
		t.Errorf("the host's directory has the files %q", got)
	}
}

// The host's own copy of a secret is not replaced unless that is requested, and no patch is written
// that would contain it.
func TestApplyKeepsSecretOutside(t *testing.T) {
	b := newTreeTest(t, map[string]string{"config": "key " + secret + "\n1\n", "other": "1\n"})
	b.source.hide = newRedactor(t)
	writeTree(t, b.inside, map[string]string{"config": "key " + secret + "\n2\n", "other": "key " + secret + "\n"})
	set := b.compare(t)
	if got := summaries(set); !slices.Equal(got, []string{"changed config secret_outside masked", "changed other masked"}) {
		t.Fatalf("Compare: got %q", got)
	}
	if strings.Contains(set.Changes[0].Text, secret) || !strings.Contains(set.Changes[0].Text, "-1\n+2\n") {
		t.Errorf("compare: got %q", set.Changes[0].Text)
	}
	if _, err := b.apply(t, set.Changes, false); fault.CodeOf(err) != "changes_conflict" {
		t.Errorf("apply: error %v", err)
	}
	var patch bytes.Buffer
	staged := b.stage(t, set)
	left, err := changeset.WritePatch(t.Context(), &patch, staged, b.base, set.Changes, b.source.Redactor, changeset.Bounds{})
	if err != nil || len(left) != 1 || left[0].Path != "config" || strings.Contains(patch.String(), secret) {
		t.Errorf("WritePatch: error %v, got %+v, %q", err, left, patch.String())
	}
	// A file that was applied once is not in conflict, and can be applied again.
	now, err := b.apply(t, b.compare(t).Changes[1:], false)
	if err != nil {
		t.Fatal(err)
	}
	b.base.Brought = now
	again := b.compare(t)
	if got := summaries(again); !slices.Equal(got, []string{"changed config secret_outside masked", "changed other masked"}) {
		t.Fatalf("Compare: got %q", got)
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
	if err != nil || strings.Contains(string(text), secret) || !strings.HasSuffix(string(text), "*\n2\n") {
		t.Errorf("ReadFile: got %q, error %v", text, err)
	}
}

// If only the mode of a file was changed, Apply does not replace its content outside.
func TestModeChangeKeepsContent(t *testing.T) {
	b := newTreeTest(t, map[string]string{"script": "echo " + secret + "\n"})
	b.source.hide = newRedactor(t)
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
	if err != nil || string(text) != "echo "+secret+"\n" || len(ready) != 1 || ready[0].Has(changeset.Masked) || ready[0].New.Sum != sumOf(string(text)) {
		t.Errorf("ReadFile: got %q, error %v, %+v", text, err, ready)
	}
}
