package lifecycle_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

func shaOf(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// exportSigned returns the content of an export and its signed statement.
func (y *workspaceRig) exportSigned(format string) (data, envelope []byte) {
	y.t.Helper()
	out, err := y.Changes().Export(y.t.Context(), local, y.sb.ID, sandbox.ExportRequest{Format: format, Provenance: true})
	if err != nil {
		y.t.Fatal(err)
	}
	defer out.Close()
	if data, err = io.ReadAll(out); err != nil {
		y.t.Fatal(err)
	}
	return data, out.Provenance
}

// verify returns a statement after checking that it holds for a file.
func (y *workspaceRig) verify(envelope []byte, c provenance.Check) *provenance.Statement {
	y.t.Helper()
	key, err := y.keys.Public()
	if err != nil {
		y.t.Fatal(err)
	}
	c.Key, c.Policy = key, y.sb.PolicyDigest
	st, found := provenance.Verify(envelope, c)
	if len(found) != 0 {
		y.t.Fatal(found)
	}
	return st
}

// P41: exports are signed with their content and the policy in force, after the audit entry.
func TestExportsAreSigned(t *testing.T) {
	for _, format := range []string{"tar", "patch"} {
		y := newWorkspaceRig(t, level("light"))
		y.remove("gone.txt")
		data, envelope := y.exportSigned(format)
		st := y.verify(envelope, provenance.Check{Artifact: shaOf(data)})
		y.verify(envelope, provenance.Check{Artifact: shaOf([]byte("one\ntwo\n")), As: "/workspace/a.txt"})
		if len(st.Subject) != 3 {
			t.Errorf("subjects of the statement: got %+v, want 3", st.Subject)
		}
		for _, secret := range []string{y.host, "TOKEN", "never-in-a-statement"} {
			if strings.Contains(string(decode(t, envelope)), secret) {
				t.Errorf("the statement contains %q", secret)
			}
		}
		d, run := st.Predicate.BuildDefinition, st.Predicate.RunDetails
		if d.ExternalParameters.Out != format || d.ExternalParameters.Level != "light" || d.ExternalParameters.Template != "base" ||
			d.InternalParameters.Removals != 1 || run.Metadata.InvocationID != y.sb.ID || !run.Metadata.StartedOn.Equal(y.sb.StartedAt) {
			t.Errorf("predicate of the statement: got %+v", st.Predicate)
		}
		exports, signed := y.record.Entries(audit.Exported), y.record.Entries(audit.ProvenanceSigned)
		if len(exports) != 1 || len(signed) != 1 || signed[0].Sandbox != y.sb.ID || signed[0].Actor != "local:0" {
			t.Fatalf("audit entries: got %+v and %+v, want one export and one signature", exports, signed)
		}
		var f payload.Provenance
		if err := json.Unmarshal(signed[0].Data, &f); err != nil {
			t.Fatal(err)
		}
		treeHead, ok := st.Predicate.RunDetails.Checkpoint()
		if !ok || treeHead.Size <= exports[0].Seq || treeHead.Size > signed[0].Seq || f.Checkpoint != treeHead.Size {
			t.Errorf("the tree head of %d entries does not cover the export at %d", treeHead.Size, exports[0].Seq)
		}
		if f.Artifact != shaOf(data) || f.Envelope != shaOf(envelope) || f.Digest != d.InternalParameters.Changes || f.Policy != y.sb.PolicyDigest || f.Subjects != 3 {
			t.Errorf("audit entry of the signature: got %+v", f)
		}
	}
}

// P41: files that are applied are signed before they are written.
func TestAppliedFilesAreSigned(t *testing.T) {
	y := newWorkspaceRig(t, level("light"))
	dry, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Provenance: true, DryRun: true})
	if err != nil || dry.Provenance != nil {
		t.Fatalf("dry run: %v", err)
	}
	done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Provenance: true})
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(y.host, "new/b.txt")
	y.verify(done.Provenance, provenance.Check{Artifact: shaOf([]byte(y.hostFile("new/b.txt"))), Path: at})
	y.remove("gone.txt")
	_, err = y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Provenance: true})
	wantKind(t, err, fault.Invalid, "provenance_empty")
	if y.hostFile("gone.txt") != "x\n" {
		t.Error("a file was removed without the requested signature")
	}
}

// P41: without an audit entry no signature is returned, and nothing comes out.
func TestSignatureNeedsAuditEntry(t *testing.T) {
	y := newWorkspaceRig(t, level("light"))
	y.record.Fail(func(d audit.Draft) bool { return d.Kind == audit.ProvenanceSigned })
	for _, signed := range []bool{true, false} {
		out, err := y.Changes().Export(t.Context(), local, y.sb.ID, sandbox.ExportRequest{Format: "tar", Provenance: signed})
		if !signed { // the control
			if err != nil || out.Provenance != nil {
				t.Error(err)
			}
			out.Close()
			continue
		}
		wantKind(t, err, fault.Unavailable, "record_unavailable")
	}
	_, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Provenance: true})
	wantKind(t, err, fault.Unavailable, "record_unavailable")
	if y.hostFile("a.txt") != "one\n" {
		t.Error("a file was applied without its signature")
	}
	y.record.Fail(nil)
	if _, envelope := y.exportSigned("tar"); len(envelope) == 0 {
		t.Error("nothing is signed")
	}
}

// Requesting a signature does not bypass a policy that denies or asks.
func TestSignatureDoesNotBypassPolicy(t *testing.T) {
	y := newWorkspaceRig(t, level("strict"))
	_, err := y.Changes().Export(t.Context(), local, y.sb.ID, sandbox.ExportRequest{Format: "tar", Provenance: true})
	wantKind(t, err, fault.Denied, "export_pending")
	if n := len(y.record.Entries(audit.ProvenanceSigned)); n != 0 {
		t.Errorf("%d were signed", n)
	}
	y.approvals.granted = true
	_, envelope := y.exportSigned("tar")
	if !strings.Contains(string(decode(t, envelope)), `"approval":"a1"`) {
		t.Errorf("the statement does not name the approval: %s", decode(t, envelope))
	}
}

func decode(t *testing.T, envelope []byte) []byte {
	t.Helper()
	var e struct {
		Payload []byte `json:"payload"`
	}
	if err := json.Unmarshal(envelope, &e); err != nil {
		t.Fatal(err)
	}
	return e.Payload
}

// A service without keys returns an error before an approval is used.
func TestSignatureNeedsKeys(t *testing.T) {
	y := newWorkspaceRigWith(t, level("light"), func(d *lifecycle.Deps) { d.Provenance = nil })
	_, err := y.Changes().Export(t.Context(), local, y.sb.ID, sandbox.ExportRequest{Format: "tar", Provenance: true})
	wantKind(t, err, fault.Unsupported, "provenance_unavailable")
	if n := len(y.record.Entries(audit.Exported)); n != 0 {
		t.Errorf("got %d audited exports, want none", n)
	}
}

// The retained changes of an ended sandbox are signed with what is known about it.
func TestRetainedChangesAreSigned(t *testing.T) {
	y := newWorkspaceRig(t, level("light"))
	if k, err := y.Changes().KeepChanges(t.Context(), local, y.sb.ID); err != nil || k.Files == 0 {
		t.Fatalf("KeepChanges: got %+v, %v", k, err)
	}
	if err := y.Remove(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := y.Remove(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	data, envelope := y.exportSigned("tar")
	st := y.verify(envelope, provenance.Check{Artifact: shaOf(data)})
	if d := st.Predicate.BuildDefinition; d.ExternalParameters.Template != "base" || d.InternalParameters.Engine != y.sb.Engine ||
		!st.Predicate.RunDetails.Metadata.StartedOn.Equal(y.sb.StartedAt) || len(d.ResolvedDependencies) == 0 {
		t.Errorf("predicate of the statement: got %+v", st.Predicate)
	}
}

// The commit is that of the sandbox's start, or none is claimed.
func TestSignedStatementNamesCommit(t *testing.T) {
	const first, second = "1111111111111111111111111111111111111111", "2222222222222222222222222222222222222222"
	for name, c := range map[string]struct {
		files map[string]string
		later func(y *workspaceRig)
		want  string
	}{
		"on a branch":        {map[string]string{".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": first + "\n"}, nil, first},
		"detached":           {map[string]string{".git/HEAD": first + "\n"}, nil, first},
		"packed":             {map[string]string{".git/HEAD": "ref: refs/heads/main\n", ".git/packed-refs": "# pack-refs\n" + second + " refs/heads/other\n" + first + " refs/heads/main\n"}, nil, first},
		"no repository":      {nil, nil, ""},
		"made since":         {nil, func(y *workspaceRig) { write(y.t, y.host, ".git/HEAD", second+"\n") }, ""},
		"no commit":          {map[string]string{".git/HEAD": "ref: refs/heads/main\n"}, nil, ""},
		"a way out":          {map[string]string{".git/HEAD": "ref: refs/../../a.txt\n"}, nil, ""},
		"committed since":    {map[string]string{".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": first + "\n"}, func(y *workspaceRig) { y.replaceHostFile(".git/refs/heads/main", second+"\n") }, ""},
		"first commit since": {map[string]string{".git/HEAD": "ref: refs/heads/main\n", ".git/packed-refs": first + " refs/heads/main\n"}, func(y *workspaceRig) { write(y.t, y.host, ".git/refs/heads/main", second+"\n") }, ""},
		"on another branch":  {map[string]string{".git/HEAD": first + "\n"}, func(y *workspaceRig) { y.replaceHostFile(".git/HEAD", second+"\n") }, ""},
		"edited in place":    {map[string]string{".git/HEAD": first + "\n"}, func(y *workspaceRig) { write(y.t, y.host, ".git/HEAD", second+"\n") }, ""},
		"another of its time": {map[string]string{".git/HEAD": first + "\n"}, func(y *workspaceRig) {
			at := filepath.Join(y.host, ".git/HEAD")
			info, err := os.Stat(at)
			y.replaceHostFile(".git/HEAD", second+"\n")
			if err = errors.Join(err, os.Chtimes(at, info.ModTime(), info.ModTime())); err != nil {
				y.t.Fatal(err)
			}
		}, ""},
		"what is inside":      {map[string]string{".git/HEAD": first + "\n"}, func(y *workspaceRig) { write(y.t, y.inside, ".git/HEAD", second+"\n") }, first},
		"what is not a hash":  {map[string]string{".git/HEAD": strings.Repeat("g", 40)}, nil, ""},
		"a link to elsewhere": {map[string]string{".git/config": ""}, func(y *workspaceRig) { y.linkHostFile(".git/HEAD") }, ""},
	} {
		y := newWorkspaceRigWith(t, level("light"), nil, c.files)
		if c.later != nil {
			c.later(y)
		}
		data, envelope := y.exportSigned("tar")
		st := y.verify(envelope, provenance.Check{Artifact: shaOf(data)})
		var commits []string
		for _, d := range st.Predicate.BuildDefinition.ResolvedDependencies {
			if d.Digest != nil {
				commits = append(commits, d.Digest.GitCommit)
			}
		}
		if got := strings.Join(commits, ""); got != c.want {
			t.Errorf("%s: got commit %q, want %q", name, got, c.want)
		}
	}
}

// replaceHostFile replaces a file of the host by renaming another file, as git does.
func (y *workspaceRig) replaceHostFile(name, text string) {
	y.t.Helper()
	write(y.t, y.host, name+".lock", text)
	if err := os.Rename(filepath.Join(y.host, name+".lock"), filepath.Join(y.host, name)); err != nil {
		y.t.Fatal(err)
	}
}

func (y *workspaceRig) linkHostFile(name string) {
	y.t.Helper()
	other := filepath.Join(y.t.TempDir(), "other")
	if err := os.WriteFile(other, slices.Repeat([]byte("3"), 40), 0o644); err != nil {
		y.t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(y.host, name)); err != nil {
		y.t.Fatal(err)
	}
}
