package retained_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/state/retained"
)

const id = "i0123456789abcdefghi"

func entry(path string, size int64) *changeset.Entry {
	return &changeset.Entry{Path: path, Type: changeset.Regular, Mode: 0o644, Size: size, MTime: time.Unix(5, 0), CTime: time.Unix(6, 0)}
}

// keep retains a few changes: a removed file that sorts before a new one, so that their numbers
// differ, and a name that is not UTF-8.
func keep(t *testing.T, s *retained.Store, id string, taken time.Time) {
	t.Helper()
	list := []changeset.Change{
		{Path: "gone", Op: changeset.Removed, Old: entry("gone", 3)},
		{Path: "new/a", Op: changeset.Created, New: entry("new/a", 5)},
		{Path: "raw\xff", Op: changeset.Changed, Old: entry("raw\xff", 1), New: entry("raw\xff", 4)},
		{Path: "link", Op: changeset.Created, New: &changeset.Entry{Path: "link", Type: changeset.Link, Mode: 0o777, Target: "new/a"}},
	}
	d, err := s.Begin(id)
	if err != nil {
		t.Fatal(err)
	}
	for n, text := range map[int]string{1: "hello", 2: "\x00\x01\x02\x03"} {
		if err := d.Files.WriteFile(fmt.Sprint(n), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := retained.Meta{
		Workspace: "/w", Dir: "/workspace", TakenAt: taken, ExpiresAt: taken.Add(retained.Life), Files: 4, Added: 1, Access: json.RawMessage(`{}`),
	}
	if err := d.Commit(m, list); err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("got error %v with code %q, want %q", err, fault.CodeOf(err), code)
	}
}

// The retained changes of an ended sandbox answer as they did when they were retained.
func TestFilesOfRetainedChanges(t *testing.T) {
	s := retained.New(filepath.Join(t.TempDir(), "changes"))
	keep(t, s, id, time.Now())
	m, err := s.Meta(id)
	if err != nil || m.ID != id || m.Bytes != 9 || m.Files != 4 {
		t.Fatalf("Meta: got %+v, error %v", m, err)
	}
	start := []changeset.Entry{*entry("gone", 3), *entry("same", 2), *entry("raw\xff", 1)}
	files, err := s.Files(id, start)
	if err != nil {
		t.Fatal(err)
	}
	tree := func(req changeset.TreeRequest) []changeset.Entry {
		t.Helper()
		r, err := files.Tree(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		all, err := changeset.ReadTree(r, changeset.Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	var names []string
	for _, e := range tree(changeset.TreeRequest{}) {
		names = append(names, e.Path)
	}
	if !slices.Equal(names, []string{"link", "new/a", "raw\xff", "same"}) {
		t.Errorf("Tree: got paths %q", names)
	}
	if some := tree(changeset.TreeRequest{Paths: [][]byte{[]byte("gone"), []byte("raw\xff")}}); len(some) != 1 || some[0].Size != 4 {
		t.Errorf("Tree of two paths: got %+v, want only the changed file", some)
	}
	// All retained content can be packed again, by its own numbers.
	var packed bytes.Buffer
	r, err := files.Pack(t.Context(), changeset.PackRequest{Paths: [][]byte{[]byte("new/a"), []byte("raw\xff"), []byte("same")}, FileBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(&packed, r); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"hello", "\x00\x01\x02\x03"} {
		if !bytes.Contains(packed.Bytes(), []byte(text)) {
			t.Errorf("%q is not packed", text)
		}
	}
	if err := s.Remove(id); err != nil {
		t.Fatal(err)
	}
	_, err = s.Meta(id)
	wantCode(t, err, "changes_not_found")
	if s.Has(id) {
		t.Error("the changes still exist after Remove")
	}
}

// Expired changes are no longer found, and the next sweep removes them; it also removes drafts of
// dead processes, and the oldest changes above the limit.
func TestSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "changes")
	s := retained.New(dir)
	if gone, err := s.Sweep(); err != nil || gone != nil {
		t.Fatalf("Sweep of an empty store: got %v, error %v", gone, err)
	}
	now := time.Now()
	name := func(n int) string { return fmt.Sprintf("i%019d", n) }
	for n := range 34 {
		keep(t, s, name(n), now.Add(-time.Duration(n)*time.Minute))
	}
	keep(t, s, id, now.Add(-retained.Life-time.Second))
	_, err := s.Meta(id)
	wantCode(t, err, "changes_not_found")
	if !s.Has(id) {
		t.Error("expired changes are gone before the sweep")
	}
	// A draft is not removed while its process is alive, however old it is.
	d, err := s.Begin(id)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := s.Sweep()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(gone)
	if want := []string{name(32), name(33), id}; !slices.Equal(gone, want) {
		t.Errorf("Sweep: got %v, want %v", gone, want)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 32+1 {
		t.Errorf("entries after Sweep: got %d, error %v, want 32 and the draft", len(entries), err)
	}
	if err := d.Abort(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 32 {
		t.Errorf("entries after Abort: got %d, error %v, want 32", len(entries), err)
	}
	list, err := s.List()
	if err != nil || len(list) != 32 || list[0].ID != name(0) {
		t.Errorf("List: got %d, error %v, want 32", len(list), err)
	}
}

func TestAbortLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "changes")
	s := retained.New(dir)
	d, err := s.Begin(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Abort(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("entries after Abort: got %v, error %v, want none", entries, err)
	}
	for _, bad := range []string{"", "..", "../x", ".draft-1"} {
		if _, err := s.Begin(bad); err == nil {
			t.Errorf("Begin accepts the ID %q", bad)
		}
		if err := s.Remove(bad); err == nil {
			t.Errorf("Remove accepts the ID %q", bad)
		}
		_, err := s.Meta(bad)
		wantCode(t, err, "changes_not_found")
	}
}

// Changes that were stored exactly one day ago are expired.
func TestChangesExpireAfterOneDay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := retained.New(dir)
		keep(t, s, id, time.Now())
		time.Sleep(retained.Life - 1)
		if _, err := s.Meta(id); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Nanosecond)
		_, err := s.Meta(id)
		wantCode(t, err, "changes_not_found")
	})
}

func TestDamagedChangesAreRejected(t *testing.T) {
	dir := t.TempDir()
	s := retained.New(dir)
	keep(t, s, id, time.Now())
	if err := os.WriteFile(filepath.Join(dir, id, "new"), []byte(`{"path":"../x","type":"file"}`+"\n"+`{"end":true,"count":1}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Files(id, nil); err == nil {
		t.Error("a path with .. is accepted")
	}
	if err := os.WriteFile(filepath.Join(dir, id, "meta.json"), []byte(`{"id":"other","more":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Meta(id); err == nil || fault.CodeOf(err) == "changes_not_found" {
		t.Errorf("damage is not reported: %v", err)
	}
}

// A copy is needed by retained changes of its own sandbox or of another one, until these are
// removed.
func TestNeeds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "changes")
	s := retained.New(dir)
	const copyOwner, copyUser, other = "icopied0000000000000", "iheir000000000000000", "iother00000000000000"
	if s.Needs(copyOwner) {
		t.Error("an empty store needs a copy")
	}
	for id, copied := range map[string]string{copyUser: copyOwner, other: ""} {
		d, err := s.Begin(id)
		if err != nil {
			t.Fatal(err)
		}
		past := time.Now().Add(-time.Hour) // expired, but not removed yet
		if err := d.Commit(retained.Meta{Copy: copied, ExpiresAt: past, Access: json.RawMessage(`{}`)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !s.Needs(copyOwner) || !s.Needs(other) || s.Needs(id) {
		t.Errorf("Needs: got %v for the copy of another sandbox, %v for its own, %v without changes; want true, true, false", s.Needs(copyOwner), s.Needs(other), s.Needs(id))
	}
	if err := s.Remove(copyUser); err != nil || s.Needs(copyOwner) {
		t.Errorf("the copy is needed after the removal: %v", err)
	}
	// Damaged changes may need any copy, until the sweep removes them.
	keep(t, s, copyUser, time.Now())
	if err := os.WriteFile(filepath.Join(dir, copyUser, "meta.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !s.Needs(copyOwner) {
		t.Error("damaged changes do not need the copy")
	}
	if _, err := s.Sweep(); err != nil || s.Needs(copyOwner) {
		t.Errorf("the copy is needed after the sweep: %v", err)
	}
}
