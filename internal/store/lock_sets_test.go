package store_test

import (
	"reflect"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/lockfile"
	"github.com/crannog/crannog/internal/sandbox"
)

// lockedRow returns a row with a set of lockfiles.
func lockedRow(t *testing.T, id string) sandbox.Row {
	t.Helper()
	set := &lockfile.Set{Files: 1, Entries: []lockfile.Entry{{Ecosystem: packages.NPM, Name: "a", Version: "1.0.0", Digests: []string{"sha512-x"}}}}
	digest, _, err := set.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Row{Locked: set, Base: sandbox.Base{Locked: digest}, Sandbox: sandbox.Sandbox{ID: id, State: sandbox.Creating}}
}

// A set of lockfiles is stored with its sandbox, shared with copies and snapshots, and removed with
// the last of them.
func TestLockSetIsSharedAndRemoved(t *testing.T) {
	s, ctx := open(t, t.TempDir()), t.Context()
	r := lockedRow(t, "i1")
	find := func() error {
		got, err := s.LockSet(ctx, r.Base.Locked)
		if err == nil && !reflect.DeepEqual(got, r.Locked) {
			t.Errorf("got %+v, want %+v", got, r.Locked)
		}
		return err
	}
	gone := func(when string) {
		t.Helper()
		if err := find(); fault.CodeOf(err) != "lockfiles_gone" {
			t.Errorf("%s: got %v, want lockfiles_gone", when, err)
		}
	}
	gone("at first")
	if err := s.Insert(ctx, r, 0); fault.CodeOf(err) != sandbox.CodeTooMany {
		t.Fatalf("beyond the limit: got %v", err)
	}
	gone("after a row that was not inserted")
	other := r
	other.Base.Locked = "sha256:other"
	if err := s.Insert(ctx, other, 9); err == nil {
		t.Error("a row with another set than its base names was inserted")
	}
	fork := r
	fork.ID, fork.Locked = "i2", nil
	for _, row := range []sandbox.Row{r, fork, {Sandbox: sandbox.Sandbox{ID: "i3", State: sandbox.Creating}}} {
		if err := s.Insert(ctx, row, 9); err != nil {
			t.Fatal(err)
		}
	}
	n := stored("snap")
	n.Base.Locked = r.Base.Locked
	if err := s.InsertSnapshot(ctx, n); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"i1", "i3", "i2"} {
		if err := s.Delete(ctx, id); err != nil {
			t.Fatal(err)
		}
		if err := find(); err != nil {
			t.Errorf("after the removal of %s: %v", id, err)
		}
	}
	if err := s.DeleteSnapshot(ctx, "snap"); err != nil {
		t.Fatal(err)
	}
	gone("at the end")
}
