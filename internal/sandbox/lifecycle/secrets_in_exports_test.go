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

// forms are the encodings in which a program may have written a value, and its second half, which a
// redactor that works piece by piece would leave.
func forms(value string) []string {
	b64 := base64.StdEncoding.EncodeToString([]byte("xy" + value + "z")) // their ends depend on what is beside the value
	return []string{value[len(value)/2:], b64[4 : len(b64)-4], hex.EncodeToString([]byte(value))}
}

func shows(text, value string) bool {
	return slices.ContainsFunc(forms(value), func(f string) bool { return strings.Contains(text, f) })
}

// newSecretsRig returns a workspaceRig whose programs have obtained the value of a secret and
// written it to files. Without bound, the sandbox has no binding of that secret, so
// that its value is an ordinary string.
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

var holding = []string{"raw", "encoded", "big", ".envrc"}

// out is everything that an export writes.
func (y *workspaceRig) out(format string) (*sandbox.Exported, string) {
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

// words are all texts that the audit log and approvers got.
func (y *workspaceRig) words() string {
	y.t.Helper()
	var all strings.Builder
	for _, e := range y.record.Entries() {
		all.Write(e.Data)
	}
	fmt.Fprintf(&all, "%+v", y.approvals.asked)
	return all.String()
}

// P44: the value of a secret that a program has obtained leaves its sandbox by no
// diff, export or apply, and the signature covers what was exported. The control is a
// sandbox with the same files and without a binding of the secret.
func TestSecretsDoNotComeOutInFiles(t *testing.T) {
	for _, bound := range []bool{true, false} {
		y, _ := newSecretsRig(t, bound)
		count := 0
		if bound {
			count = len(holding)
		}
		set, err := y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{Text: true})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, c := range set.Changes {
			text.WriteString(c.Text)
			if c.Has(changeset.Masked) && c.New.Sum != "" {
				t.Errorf("a guess at what is in %s can be checked", c.Path)
			}
		}
		if shows(text.String(), firstValue) == bound || changeset.CountMasked(set.Changes) != count {
			t.Errorf("bound %v: diff shows %v, %d masked", bound, shows(text.String(), firstValue), changeset.CountMasked(set.Changes))
		}
		for _, format := range []string{"tar", "patch"} {
			out, text := y.out(format)
			if shows(text, firstValue) == bound || out.Masked != count {
				t.Errorf("bound %v: %s shows %v, %d masked", bound, format, shows(text, firstValue), out.Masked)
			}
			st := y.verified(out.Provenance, provenance.Check{Artifact: shaOf([]byte(text))})
			if st.Predicate.BuildDefinition.InternalParameters.Masked != count {
				t.Errorf("%+v", st.Predicate.BuildDefinition.InternalParameters)
			}
		}
		done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Protected: true, Provenance: true})
		if err != nil || changeset.CountMasked(done.Applied) != count {
			t.Fatalf("%+v %v", done, err)
		}
		for _, name := range holding {
			inside, err := os.ReadFile(filepath.Join(y.inside, name))
			if err != nil {
				t.Fatal(err)
			}
			came := y.outside(name)
			if shows(came, firstValue) == bound || len(came) != len(inside) {
				t.Errorf("bound %v: %s shows %v, %d of %d bytes", bound, name, shows(came, firstValue), len(came), len(inside))
			}
			y.verified(done.Provenance, provenance.Check{Artifact: shaOf([]byte(came)), Path: filepath.Join(y.host, name)})
		}
		if bound && !strings.Contains(y.words(), `"masked":4`) {
			t.Error("the audit log does not say that something was redacted")
		}
	}
}

// P44: an earlier value is redacted like the one in use.
func TestEarlierSecretsDoNotComeOut(t *testing.T) {
	y, k := newSecretsRig(t, true)
	k.set("KEY", secondValue)
	if err := y.RotateSecrets(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	write(t, y.inside, "raw", firstValue+" "+secondValue)
	if _, text := y.out("tar"); shows(text, firstValue) || shows(text, secondValue) {
		t.Error("it comes out")
	}
}

// P44: a file whose name contains a secret stays inside, and its name is not shown.
func TestNamesOfSecretsStayInside(t *testing.T) {
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
		_, text := y.out("tar")
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
		if bound && strings.Contains(y.words(), firstValue) {
			t.Error("the name is in the record")
		}
		if came := y.outside("dir-" + firstValue + "/.envrc"); (came == "-") != bound {
			t.Errorf("bound %v: it came as %q", bound, came)
		}
	}
}

// P44: kept changes hold no secret value, and need none for redaction: the values may
// no longer be known when the changes are exported.
func TestKeptChangesHoldNoSecret(t *testing.T) {
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
		for _, form := range forms(firstValue) {
			if held := hosttest.Holding(t, kept, form); (len(held) == 0) != bound {
				t.Errorf("bound %v: the value is kept in %q", bound, held)
			}
		}
		count := 0
		if bound {
			count = len(holding) + 1
		}
		out, text := y.out("tar")
		if shows(text, firstValue) == bound || out.Masked != count {
			t.Errorf("bound %v: tar shows %v, %d masked", bound, shows(text, firstValue), out.Masked)
		}
		done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Protected: true, Overwrite: !bound})
		if err != nil {
			t.Fatal(err)
		}
		if bound {
			// The host's file was changed since, and contains the value too.
			if len(done.Skipped) != 1 || done.Skipped[0].Path != "same.txt" || y.outside("same.txt") != "mine "+firstValue {
				t.Errorf("%+v", done.Skipped)
			}
		}
		if came := y.outside("raw"); shows(came, firstValue) == bound || came == "-" {
			t.Errorf("bound %v: %q", bound, came)
		}
	}
}

// A file of the host that also contains the value is not replaced without an approval. This holds
// for retained changes too, when the value is not known any more.
func TestAKeptFileReplacesNoSecretUnasked(t *testing.T) {
	k, with := newSecretStore(t)
	k.set("KEY", firstValue)
	access := binding(t, "KEY")
	access.Level = "light"
	y := newWorkspaceRigWith(t, access, with, map[string]string{"config": "key " + firstValue + "\n"})
	write(t, y.inside, "config", "key "+firstValue+"\nmore\n")
	skips := func() {
		t.Helper()
		done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Paths: []string{"config"}})
		if err != nil || len(done.Skipped) != 1 || done.Skipped[0].Conflict != changeset.SecretOutside || !strings.Contains(y.outside("config"), firstValue) {
			t.Fatalf("%+v %v", done, err)
		}
	}
	skips()
	if _, err := y.Changes().KeepChanges(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := y.Forget(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	k.fail(errors.New("closed"))
	skips()
	done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Paths: []string{"config"}, Overwrite: true})
	if err != nil || changeset.CountMasked(done.Applied) != 1 || strings.Contains(y.outside("config"), firstValue) {
		t.Errorf("%+v %v", done, err)
	}
}

// The redactor of a paused sandbox comes from its policy; if it cannot be created, nothing leaves a
// paused or a running sandbox.
func TestNothingLeavesUnmasked(t *testing.T) {
	y, k := newSecretsRig(t, true)
	if _, err := y.Pause(t.Context(), local, y.sb.ID, true); err != nil {
		t.Fatal(err)
	}
	if _, text := y.out("tar"); shows(text, firstValue) {
		t.Error("it comes out of a paused sandbox")
	}
	refused := func() {
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
	refused()
	if _, _, err := y.Resume(t.Context(), local, y.sb.ID, 0); err != nil {
		t.Fatal(err)
	}
	y.close()
	y.open(y.options)
	refused()
	if y.outside("raw") != "-" {
		t.Error("it came out")
	}
	if _, err := y.Changes().Changes(context.Background(), local, y.sb.ID, sandbox.ChangesRequest{}); err != nil {
		t.Errorf("the control: %v", err)
	}
}
