package lifecycle_test

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/tree"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/state/retained"
	"github.com/crannog/crannog/internal/state/workspace"
)

// workspaceRig is a rig with one sandbox that has a workspace directory, and whose guest has a copy
// of it for tests to change.
type workspaceRig struct {
	*rig
	approvals    *fakeApprovals
	host, inside string
	state        string
	keys         *provenance.Keys
	sb           sandbox.Sandbox
	options      option
}

// guestFiles answers like a guest, about a local directory.
func guestFiles(dir string) http.Handler { return guestDirs(func(string) string { return dir }) }

// guestDirs answers like a guest whose directories are at other paths of the host.
func guestDirs(onHost func(inside string) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		if r.URL.Path == guest.PathTree {
			var req changeset.TreeRequest
			if err = json.NewDecoder(r.Body).Decode(&req); err == nil {
				req.Dir = onHost(req.Dir)
				err = tree.List(r.Context(), w, req)
			}
		} else {
			var req changeset.PackRequest
			if err = json.NewDecoder(r.Body).Decode(&req); err == nil {
				req.Dir = onHost(req.Dir)
				err = tree.Pack(r.Context(), w, req)
			}
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	})
}

func newWorkspaceRig(t *testing.T, access sandbox.Access) *workspaceRig {
	t.Helper()
	return newWorkspaceRigWith(t, access, nil)
}

// newWorkspaceRigWith changes the service, and puts more files into the directory.
func newWorkspaceRigWith(t *testing.T, access sandbox.Access, change option, more ...map[string]string) *workspaceRig {
	t.Helper()
	y := newEmptyWorkspaceRig(t, change)
	for _, dir := range []string{y.host, y.inside} {
		write(t, dir, "a.txt", "one\n")
		write(t, dir, "gone.txt", "x\n")
		write(t, dir, "same.txt", "same\n")
		for _, files := range more {
			for name, text := range files {
				write(t, dir, name, text)
			}
		}
	}
	y.start(access)
	write(t, y.inside, "a.txt", "one\ntwo\n")
	write(t, y.inside, "new/b.txt", "new\n")
	return y
}

// newEmptyWorkspaceRig returns a rig without files and without a sandbox.
func newEmptyWorkspaceRig(t *testing.T, change option) *workspaceRig {
	t.Helper()
	y := &workspaceRig{approvals: &fakeApprovals{}, host: t.TempDir(), inside: t.TempDir()}
	state := t.TempDir()
	y.keys = provenance.NewKeys(filepath.Join(state, "provenance"))
	y.options = func(d *lifecycle.Deps) {
		d.Provenance = y.keys
		d.Approvals, d.Retained, d.Journals = y.approvals, retained.New(filepath.Join(state, "changes")), filepath.Join(state, "applies")
		d.Manifests, d.Copies = workspace.NewManifests(filepath.Join(state, "manifests")), workspace.New(filepath.Join(state, "workspaces"))
		if change != nil {
			change(d)
		}
	}
	y.rig = newRig(t, y.options)
	y.state = state
	y.files = guestFiles(y.inside)
	return y
}

// start creates the sandbox.
func (y *workspaceRig) start(access sandbox.Access) {
	y.t.Helper()
	sb, err := y.Create(y.t.Context(), local, sandbox.CreateRequest{Template: "base", Workspace: y.host, Access: access, Env: map[string]string{"TOKEN": "never-in-a-statement"}})
	if err != nil {
		y.t.Fatal(err)
	}
	y.sb = sb
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (y *workspaceRig) remove(name string) {
	y.t.Helper()
	if err := os.Remove(filepath.Join(y.inside, name)); err != nil {
		y.t.Fatal(err)
	}
}

// hostFile returns the text of a file of the host, or "-" if there is none.
func (y *workspaceRig) hostFile(name string) string {
	y.t.Helper()
	text, err := os.ReadFile(filepath.Join(y.host, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	if err != nil {
		y.t.Fatal(err)
	}
	return string(text)
}

func (y *workspaceRig) changes() []string {
	y.t.Helper()
	set, err := y.Changes().Changes(y.t.Context(), local, y.sb.ID, sandbox.ChangesRequest{})
	if err != nil {
		y.t.Fatal(err)
	}
	return paths(set.Changes)
}

func paths(list []changeset.Change) (out []string) {
	for _, c := range list {
		out = append(out, string(c.Op)+" "+c.Path)
	}
	return out
}

func level(l string) sandbox.Access { return sandbox.Access{Level: l, Net: sandbox.NetNone} }

func TestAllowedChangesAreApplied(t *testing.T) {
	y := newWorkspaceRig(t, level("standard"))
	want := []string{"changed a.txt", "created new", "created new/b.txt"}
	if got := y.changes(); !slices.Equal(got, want) {
		t.Fatalf("changes: got %q, want %q", got, want)
	}
	dry, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{DryRun: true})
	if err != nil || len(dry.Applied) != 3 || dry.Decision.Effect != egress.Allow || y.hostFile("a.txt") != "one\n" {
		t.Fatalf("dry run: got %+v, %v", dry, err)
	}
	_, err = y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Digest: "sha256:other"})
	wantKind(t, err, fault.Conflict, "changes_moved")
	done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Digest: dry.Digest})
	if err != nil || len(done.Applied) != 3 {
		t.Fatalf("apply: got %+v, %v; want 3 files", done, err)
	}
	if y.hostFile("a.txt") != "one\ntwo\n" || y.hostFile("new/b.txt") != "new\n" {
		t.Error("the applied files are not on the host")
	}
	if got := y.changes(); got != nil {
		t.Errorf("applied changes are still listed: %q", got)
	}
	// Later comparisons use the applied state.
	write(t, y.inside, "a.txt", "three\n")
	if got := y.changes(); !slices.Equal(got, []string{"changed a.txt"}) {
		t.Errorf("changes after an apply: got %q, want only a.txt", got)
	}
	set, err := y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{})
	if err != nil || set.Changes[0].Conflict != "" {
		t.Errorf("an applied file has a conflict: %+v %v", set, err)
	}
	exports := y.record.Entries(audit.Exported)
	if len(exports) != 1 || exports[0].Sandbox != y.sb.ID || !strings.Contains(string(exports[0].Data), dry.Digest) {
		t.Errorf("audit entries of exports: got %+v, want one with the digest", exports)
	}
}

// P38: if the policy requires an approval, nothing is exported before it, and then exactly the
// approved changes, once.
func TestDeletionsNeedApproval(t *testing.T) {
	y := newWorkspaceRig(t, level("standard"))
	y.remove("gone.txt")
	_, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{})
	wantKind(t, err, fault.Denied, "export_pending")
	if y.hostFile("a.txt") != "one\n" || y.hostFile("new/b.txt") != "-" || y.hostFile("gone.txt") != "x\n" {
		t.Fatal("changes were applied without an approval")
	}
	if n := len(y.record.Entries(audit.Exported)); n != 0 {
		t.Errorf("%d audited exports, want none", n)
	}
	q := y.approvals.asked[0]
	if q.Kind != egress.AskDelete || q.Rule != policy.RuleDeletions || q.Facts["deletions"] != "1" || q.Facts["files"] != "3" || q.Facts["to"] != y.host ||
		!strings.HasPrefix(q.Facts["paths"], "removed gone.txt; ") || q.Facts["digest"] == "" || q.Policy != y.sb.PolicyDigest {
		t.Errorf("approval request: got %+v", q)
	}
	// Any other choice, destination or content needs another approval.
	for name, again := range map[string]func() error{
		"fewer": func() error {
			_, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Paths: []string{"gone.txt"}})
			return err
		},
		"tar": func() error {
			_, err := y.Changes().Export(t.Context(), local, y.sb.ID, sandbox.ExportRequest{Format: "tar"})
			return err
		},
		"content": func() error {
			write(t, y.inside, "a.txt", "evil\n")
			_, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{})
			return err
		},
	} {
		n := len(y.approvals.asked)
		wantKind(t, again(), fault.Denied, "export_pending")
		if len(y.approvals.asked) != n+1 || y.approvals.asked[n].Facts["digest"] == q.Facts["digest"] && y.approvals.asked[n].Facts["to"] == q.Facts["to"] {
			t.Errorf("%s: got approval requests %+v, want one with another digest or destination", name, y.approvals.asked[n:])
		}
	}
	y.approvals.granted = true
	done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{})
	if err != nil || done.Approval != "a1" || y.hostFile("gone.txt") != "-" || y.hostFile("a.txt") != "evil\n" {
		t.Fatalf("apply with a grant: got %+v, %v", done, err)
	}
	// The grant is used up.
	y.remove("same.txt")
	_, err = y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{})
	wantKind(t, err, fault.Denied, "export_pending")
	if y.hostFile("same.txt") != "same\n" {
		t.Error("a grant was used twice")
	}
}

// P38: a policy that denies an export lets nothing out, not even as text. Files that an allowing
// policy does not name are not exported.
func TestPolicyDeniesExports(t *testing.T) {
	deny := sandbox.Access{Level: "light", Net: sandbox.NetNone, Documents: []policy.Document{
		{Policy: "v1", Filesystem: policy.Filesystem{Export: policy.Export{Do: egress.Deny}}},
	}}
	y := newWorkspaceRig(t, deny)
	_, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{})
	wantKind(t, err, fault.Denied, "export_denied")
	for _, format := range []string{"tar", "patch"} {
		_, err = y.Changes().Export(t.Context(), local, y.sb.ID, sandbox.ExportRequest{Format: format})
		wantKind(t, err, fault.Denied, "export_denied")
	}
	set, err := y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{Text: true})
	if err != nil || set.Files != 3 || set.Added == 0 {
		t.Fatalf("comparison: got %+v, %v; want 3 files", set, err)
	}
	for _, c := range set.Changes {
		if c.Text != "" {
			t.Errorf("the text of %s is shown", c.Path)
		}
	}
	artifacts, err := policy.Artifacts("new/**")
	if err != nil {
		t.Fatal(err)
	}
	y = newWorkspaceRig(t, sandbox.Access{Level: "light", Net: sandbox.NetNone, Documents: []policy.Document{artifacts}})
	done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Protected: true, Overwrite: true})
	if err != nil || y.hostFile("a.txt") != "one\n" || y.hostFile("new/b.txt") != "new\n" {
		t.Errorf("apply of the paths in the policy: got %+v, %v", done, err)
	}
	if got := y.changes(); !slices.Equal(got, []string{"changed a.txt"}) {
		t.Errorf("changes after the apply: got %q, want only a.txt", got)
	}
}

// P38: the paths in a policy are below the workspace. The same names elsewhere do not match, and no
// part of the workspace counts as elsewhere.
func TestExportPathsAreBelowWorkspace(t *testing.T) {
	artifacts, err := policy.Artifacts("new/**")
	if err != nil {
		t.Fatal(err)
	}
	named := newWorkspaceRig(t, sandbox.Access{Level: "light", Net: sandbox.NetNone, Documents: []policy.Document{artifacts}})
	elsewhere := sandbox.ChangesRequest{Dir: "/no-such-place", Text: true}
	_, err = named.Changes().Export(t.Context(), local, named.sb.ID, sandbox.ExportRequest{ChangesRequest: elsewhere, Format: "tar"})
	wantKind(t, err, fault.NotFound, "nothing_to_export")
	set, err := named.Changes().Changes(t.Context(), local, named.sb.ID, elsewhere)
	if err != nil || set.Files == 0 {
		t.Fatalf("comparison outside of the workspace: got %+v, %v", set, err)
	}
	for _, c := range set.Changes {
		if c.Text != "" {
			t.Errorf("the text of %s is shown", c.Path)
		}
	}
	all := newWorkspaceRig(t, level("light")) // control
	out, err := all.Changes().Export(t.Context(), local, all.sb.ID, sandbox.ExportRequest{ChangesRequest: elsewhere, Format: "tar"})
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
	_, err = all.Changes().Changes(t.Context(), local, all.sb.ID, sandbox.ChangesRequest{Dir: "/workspace/new"})
	wantKind(t, err, fault.Invalid, "dir_invalid")
}

// P38: nothing is exported without an audit entry.
func TestExportNeedsAuditEntry(t *testing.T) {
	y := newWorkspaceRig(t, level("light"))
	y.record.Fail(func(d audit.Draft) bool { return d.Kind == audit.Exported })
	_, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{})
	wantKind(t, err, fault.Unavailable, "record_unavailable")
	if y.hostFile("a.txt") != "one\n" || y.hostFile("new/b.txt") != "-" {
		t.Error("changes were applied without an audit entry")
	}
	_, err = y.Changes().Export(t.Context(), local, y.sb.ID, sandbox.ExportRequest{Format: "tar"})
	wantKind(t, err, fault.Unavailable, "record_unavailable")
	y.record.Fail(nil) // control
	if _, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{}); err != nil || y.hostFile("a.txt") == "one\n" {
		t.Errorf("apply with a working audit log: %v", err)
	}
}

// P38: reading the content of files is an export, and has an audit entry. Names and counts are not.
func TestShownTextIsAudited(t *testing.T) {
	y := newWorkspaceRig(t, level("light"))
	// The longest paths that a sandbox can choose fit into an entry.
	for i := range 100 {
		write(t, y.inside, fmt.Sprintf("%s/%d/.envrc", strings.Repeat("\x01", 200)+strings.Repeat("/"+strings.Repeat("\x01", 200), 15), i), "export X=1\n")
	}
	if _, err := y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{}); err != nil || len(y.record.Entries(audit.Exported)) != 0 {
		t.Fatalf("comparison without text: %v, audit entries %+v", err, y.record.Entries(audit.Exported))
	}
	y.record.Fail(func(d audit.Draft) bool { return d.Kind == audit.Exported })
	_, err := y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{Text: true})
	wantKind(t, err, fault.Unavailable, "record_unavailable")
	y.record.Fail(nil)
	set, err := y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{Text: true, Paths: []string{"a.txt"}})
	if err != nil || len(set.Changes) != 1 || set.Changes[0].Text == "" {
		t.Fatalf("comparison with text: got %+v, %v", set, err)
	}
	var e payload.Export
	entries := y.record.Entries(audit.Exported)
	if len(entries) != 1 || entries[0].Sandbox != y.sb.ID || entries[0].Actor != "local:0" || json.Unmarshal(entries[0].Data, &e) != nil {
		t.Fatalf("audit entries of exports: got %+v, want one", entries)
	}
	if e.To != "diff" || e.Digest != set.Digest || e.Files != 1 || e.Policy != y.sb.PolicyDigest {
		t.Errorf("audit entry: got %+v, want a diff of one file", e)
	}
	if _, err := y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{Text: true}); err != nil {
		t.Error(err)
	}
	entries = y.record.Entries(audit.Exported)
	if len(entries) != 2 || len(entries[1].Data) > 256<<10 || !strings.Contains(string(entries[1].Data), ".envrc") {
		t.Errorf("%d entries, the last of %d bytes", len(entries), len(entries[len(entries)-1].Data))
	}
}

// P38: flagged files are exported only on request, and some files not even then.
func TestFlaggedFilesAreNotExported(t *testing.T) {
	y := newWorkspaceRig(t, level("light"))
	write(t, y.inside, ".git/hooks/post-checkout", "#!/bin/sh\n")
	write(t, y.inside, ".envrc", "export X=1\n")
	if err := os.Symlink("/etc/passwd", filepath.Join(y.inside, "out")); err != nil {
		t.Fatal(err)
	}
	done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{})
	if err != nil || y.hostFile(".envrc") != "-" || y.hostFile(".git/hooks/post-checkout") != "-" || y.hostFile("a.txt") == "one\n" {
		t.Fatalf("apply of files without flags: got %+v, %v", done, err)
	}
	if skipped := paths(done.Skipped); !slices.Contains(skipped, "created .envrc") || !slices.Contains(skipped, "created out") {
		t.Errorf("skipped changes: %q", skipped)
	}
	if _, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Protected: true}); err != nil || y.hostFile(".envrc") == "-" {
		t.Errorf("apply of protected files on request: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(y.host, "out")); err == nil {
		t.Error("a link that leads out of the workspace was applied")
	}
}

// Keys see and export the changes of their own sandboxes, but change no directory of the host. For
// other keys the sandbox does not exist.
func TestExportPermissions(t *testing.T) {
	y := newWorkspaceRig(t, level("light"))
	sb := y.create(alice)
	for _, ref := range []string{y.sb.ID, sb.ID} {
		_, err := y.Changes().Apply(t.Context(), alice, ref, sandbox.ApplyRequest{})
		wantKind(t, err, fault.Denied, "apply_not_local")
		_, err = y.Changes().KeepChanges(t.Context(), alice, ref)
		wantKind(t, err, fault.Denied, "changes_not_local")
		_, err = y.Changes().Changes(t.Context(), bob, ref, sandbox.ChangesRequest{})
		wantKind(t, err, fault.NotFound, "sandbox_not_found")
		_, err = y.Changes().Export(t.Context(), bob, ref, sandbox.ExportRequest{Format: "tar"})
		wantKind(t, err, fault.NotFound, "sandbox_not_found")
	}
	_, err := y.Changes().ListChanges(t.Context(), alice)
	wantKind(t, err, fault.Denied, "changes_not_local")
	wantKind(t, y.Changes().DiscardChanges(t.Context(), alice, y.sb.ID), fault.Denied, "changes_not_local")
	_, err = y.Changes().Changes(t.Context(), sandbox.Principal{}, y.sb.ID, sandbox.ChangesRequest{})
	wantKind(t, err, fault.Unauthenticated, "unauthenticated")
	// The workspace started empty, so all of it is new.
	out, err := y.Changes().Export(t.Context(), alice, sb.ID, sandbox.ExportRequest{Format: "tar"})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var names []string
	for r := tar.NewReader(out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	if !slices.Contains(names, "a.txt") || !slices.Contains(names, "new/b.txt") {
		t.Errorf("names in the tar: got %q, want a.txt and new/b.txt", names)
	}
}
