package lifecycle_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// encodings returns the encodings in which a program may have written a value, and its second half,
// which a redactor that works piece by piece would leave.
func encodings(value string) []string {
	b64 := base64.StdEncoding.EncodeToString([]byte("xy" + value + "z")) // their ends depend on what is beside the value
	return []string{value[len(value)/2:], b64[4 : len(b64)-4], hex.EncodeToString([]byte(value))}
}

func containsValue(text, value string) bool {
	return slices.ContainsFunc(encodings(value), func(f string) bool { return strings.Contains(text, f) })
}

// newSecretsRig returns a workspaceRig whose programs have obtained the value of a secret and
// written it to files. Without bound, the sandbox has no binding of that secret, so that its value
// is an ordinary string.
func newSecretsRig(t *testing.T, bound bool) (*workspaceRig, *secretStore) {
	t.Helper()
	k, with := newSecretStore(t)
	k.set("KEY", firstValue)
	access := binding(t)
	if bound {
		access = binding(t, "KEY")
	}
	access.Level = "light"
	y := newWorkspaceRigWith(t, access, with)
	big := bytes.Repeat([]byte("\n"), 300<<10)
	copy(big[256<<10-5:], firstValue)
	for name, text := range map[string]string{
		"raw": "key " + firstValue + "\n", "encoded": base64.StdEncoding.EncodeToString([]byte("xy"+firstValue+"z")) + "\n" + hex.EncodeToString([]byte(firstValue)) + "\n", "big": string(big), ".envrc": "export K=" + firstValue + "\n",
	} {
		write(t, y.inside, name, text)
	}
	return y, k
}

var filesWithSecret = []string{"raw", "encoded", "big", ".envrc"}

// exportFile exports the changes and returns the written text.
func (y *workspaceRig) exportFile(format string) (*sandbox.Exported, string) {
	y.t.Helper()
	out, err := y.Changes().Export(y.t.Context(), local, y.sb.ID, sandbox.ExportRequest{Format: format, Protected: true, Provenance: true})
	if err != nil {
		y.t.Fatal(err)
	}
	defer out.Close()
	text, err := io.ReadAll(out)
	if err != nil {
		y.t.Fatal(err)
	}
	return out, string(text)
}

// auditText returns all texts that the audit log and approvers got.
func (y *workspaceRig) auditText() string {
	y.t.Helper()
	var all strings.Builder
	for _, e := range y.record.Entries() {
		all.Write(e.Data)
	}
	fmt.Fprintf(&all, "%+v", y.approvals.asked)
	return all.String()
}

// P44: the value of a secret that a program has obtained leaves its sandbox by no diff, export or
// apply, and the signature covers what was exported. The control is a sandbox with the same files
// and without a binding of the secret.
func TestExportsContainNoSecrets(t *testing.T) {
	for _, bound := range []bool{true, false} {
		y, _ := newSecretsRig(t, bound)
		count := 0
		if bound {
			count = len(filesWithSecret)
		}
		set, err := y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{Text: true})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, c := range set.Changes {
			text.WriteString(c.Text)
			if c.Has(changeset.Masked) && c.New.Sum != "" {
				t.Errorf("the checksum of %s is shown, with which a guess of its content could be checked", c.Path)
			}
		}
		if containsValue(text.String(), firstValue) == bound || changeset.CountMasked(set.Changes) != count {
			t.Errorf("bound %v: diff shows %v, %d masked", bound, containsValue(text.String(), firstValue), changeset.CountMasked(set.Changes))
		}
		for _, format := range []string{"tar", "patch"} {
			out, text := y.exportFile(format)
			if containsValue(text, firstValue) == bound || out.Masked != count {
				t.Errorf("bound %v: %s shows %v, %d masked", bound, format, containsValue(text, firstValue), out.Masked)
			}
			st := y.verify(out.Provenance, provenance.Check{Artifact: shaOf([]byte(text))})
			if st.Predicate.BuildDefinition.InternalParameters.Masked != count {
				t.Errorf("parameters in the statement: got %+v", st.Predicate.BuildDefinition.InternalParameters)
			}
		}
		done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Protected: true, Provenance: true})
		if err != nil || changeset.CountMasked(done.Applied) != count {
			t.Fatalf("apply: got %+v, %v", done, err)
		}
		for _, name := range filesWithSecret {
			inside, err := os.ReadFile(filepath.Join(y.inside, name))
			if err != nil {
				t.Fatal(err)
			}
			hostText := y.hostFile(name)
			if containsValue(hostText, firstValue) == bound || len(hostText) != len(inside) {
				t.Errorf("bound %v: %s shows %v, %d of %d bytes", bound, name, containsValue(hostText, firstValue), len(hostText), len(inside))
			}
			y.verify(done.Provenance, provenance.Check{Artifact: shaOf([]byte(hostText)), Path: filepath.Join(y.host, name)})
		}
		if bound && !strings.Contains(y.auditText(), `"masked":4`) {
			t.Error("the audit log does not have the number of redacted files")
		}
	}
}

// P44: an earlier value is redacted like the one in use.
func TestExportsContainNoEarlierSecrets(t *testing.T) {
	y, k := newSecretsRig(t, true)
	k.set("KEY", secondValue)
	if err := y.RotateSecrets(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	write(t, y.inside, "raw", firstValue+" "+secondValue)
	if _, text := y.exportFile("tar"); containsValue(text, firstValue) || containsValue(text, secondValue) {
		t.Error("an export contains a secret")
	}
}

// P44: a file whose name contains a secret stays inside, and its name is not shown.
func TestFilesNamedAfterSecretsAreNotExported(t *testing.T) {
	for _, bound := range []bool{true, false} {
		y, _ := newSecretsRig(t, bound)
		write(t, y.inside, "dir-"+firstValue+"/.envrc", "1")
		if err := os.Symlink(firstValue, filepath.Join(y.inside, "link")); err != nil {
			t.Fatal(err)
		}
		set, err := y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{Text: true})
		if err != nil {
			t.Fatal(err)
		}
		_, text := y.exportFile("tar")
		done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Protected: true})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := json.Marshal([]any{set, done})
		if err != nil {
			t.Fatal(err)
		}
		for where, output := range map[string]string{"the answers": string(answer), "a tar": text} {
			if strings.Contains(output, firstValue) == bound {
				t.Errorf("bound %v: the name is in %s: %v", bound, where, strings.Contains(output, firstValue))
			}
		}
		if bound && strings.Contains(y.auditText(), firstValue) {
			t.Error("the name is in the audit log")
		}
		if hostText := y.hostFile("dir-" + firstValue + "/.envrc"); (hostText == "-") != bound {
			t.Errorf("bound %v: the host file has %q", bound, hostText)
		}
	}
}

// P44: retained changes contain no secret value, and need none for redaction: the values may
// no longer be known when the changes are exported.
func TestRetainedChangesContainNoSecret(t *testing.T) {
	for _, bound := range []bool{true, false} {
		y, k := newSecretsRig(t, bound)
		write(t, y.inside, "name-"+firstValue, "1")
		write(t, y.host, "same.txt", "mine "+firstValue)
		write(t, y.inside, "same.txt", "theirs "+firstValue)
		if _, err := y.Changes().KeepChanges(t.Context(), local, y.sb.ID); err != nil {
			t.Fatal(err)
		}
		if err := y.Forget(t.Context(), local, y.sb.ID); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(y.inside); err != nil {
			t.Fatal(err)
		}
		k.fail(errors.New("closed"))
		kept := filepath.Join(y.state, "changes")
		for _, form := range encodings(firstValue) {
			if held := hosttest.Holding(t, kept, form); (len(held) == 0) != bound {
				t.Errorf("bound %v: the value is kept in %q", bound, held)
			}
		}
		count := 0
		if bound {
			count = len(filesWithSecret) + 1
		}
		out, text := y.exportFile("tar")
		if containsValue(text, firstValue) == bound || out.Masked != count {
			t.Errorf("bound %v: tar shows %v, %d masked", bound, containsValue(text, firstValue), out.Masked)
		}
		done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Protected: true, Overwrite: !bound})
		if err != nil {
			t.Fatal(err)
		}
		if bound {
			// The host's file was changed since, and contains the value too.
			if len(done.Skipped) != 1 || done.Skipped[0].Path != "same.txt" || y.hostFile("same.txt") != "mine "+firstValue {
				t.Errorf("skipped changes: got %+v, want same.txt", done.Skipped)
			}
		}
		if hostText := y.hostFile("raw"); containsValue(hostText, firstValue) == bound || hostText == "-" {
			t.Errorf("bound %v: the file raw on the host is %q", bound, hostText)
		}
	}
}

// A file of the host that also contains the value is not replaced without an approval. This holds
// for retained changes too, when the value is not known any more.
func TestHostFileWithSecretIsNotReplaced(t *testing.T) {
	k, with := newSecretStore(t)
	k.set("KEY", firstValue)
	access := binding(t, "KEY")
	access.Level = "light"
	y := newWorkspaceRigWith(t, access, with, map[string]string{"config": "key " + firstValue + "\n"})
	write(t, y.inside, "config", "key "+firstValue+"\nmore\n")
	wantSkipped := func() {
		t.Helper()
		done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Paths: []string{"config"}})
		if err != nil || len(done.Skipped) != 1 || done.Skipped[0].Conflict != changeset.SecretOutside || !strings.Contains(y.hostFile("config"), firstValue) {
			t.Fatalf("apply without overwriting: got %+v, %v", done, err)
		}
	}
	wantSkipped()
	if _, err := y.Changes().KeepChanges(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := y.Forget(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	k.fail(errors.New("closed"))
	wantSkipped()
	done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Paths: []string{"config"}, Overwrite: true})
	if err != nil || changeset.CountMasked(done.Applied) != 1 || strings.Contains(y.hostFile("config"), firstValue) {
		t.Errorf("apply with overwriting: got %+v, %v", done, err)
	}
}

// The redactor of a paused sandbox comes from its policy; if it cannot be created, nothing leaves a
// paused or a running sandbox.
func TestExportsNeedRedactor(t *testing.T) {
	y, k := newSecretsRig(t, true)
	if _, err := y.Pause(t.Context(), local, y.sb.ID, true); err != nil {
		t.Fatal(err)
	}
	if _, text := y.exportFile("tar"); containsValue(text, firstValue) {
		t.Error("an export of a paused sandbox contains the secret")
	}
	wantUnavailable := func() {
		t.Helper()
		k.fail(errors.New("closed"))
		defer k.fail(nil)
		_, err := y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{})
		wantKind(t, err, fault.Unavailable, "mask_unavailable")
		_, err = y.Changes().Export(t.Context(), local, y.sb.ID, sandbox.ExportRequest{Format: "tar"})
		wantKind(t, err, fault.Unavailable, "mask_unavailable")
		_, err = y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{})
		wantKind(t, err, fault.Unavailable, "mask_unavailable")
	}
	wantUnavailable()
	if _, _, err := y.Resume(t.Context(), local, y.sb.ID, 0); err != nil {
		t.Fatal(err)
	}
	y.close()
	y.open(y.options)
	wantUnavailable()
	if y.hostFile("raw") != "-" {
		t.Error("the secret was exported")
	}
	if _, err := y.Changes().Changes(context.Background(), local, y.sb.ID, sandbox.ChangesRequest{}); err != nil {
		t.Errorf("control: %v", err)
	}
}
