package store_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/store"
)

// TestRowsOfEarlierVersionsNameTheirEngine opens a database of a version that had one
// engine. Its rows must name that engine afterwards.
func TestRowsOfEarlierVersionsNameTheirEngine(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for id, engine := range map[string]string{"i1": "", "i2": "other"} {
		r := fullRow(id)
		r.Name, r.Engine = "", engine
		if err := s.Insert(t.Context(), r, 100); err != nil {
			t.Fatal(err)
		}
	}
	for id, sandboxID := range map[string]string{"a": "i1", "b": "i2", "c": "gone"} {
		n := stored(id)
		n.Sandbox, n.Name, n.Engine = sandboxID, "", "wrong"
		if err := s.InsertSnapshot(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	downgrade(t, filepath.Join(dir, store.FileName))

	s = open(t, dir)
	for id, want := range map[string]string{"i1": "gvisor", "i2": "other"} {
		if r, err := s.Get(t.Context(), id); err != nil || r.Engine != want {
			t.Errorf("sandbox %s has the engine %q (%v), want %q", id, r.Engine, err, want)
		}
	}
	for id, want := range map[string]string{"a": "gvisor", "b": "other", "c": "gvisor"} {
		var n sandbox.Stored
		n, err := s.GetSnapshot(t.Context(), id)
		if err != nil || n.Engine != want {
			t.Errorf("snapshot %s has the engine %q (%v), want %q", id, n.Engine, err, want)
		}
	}
}

// downgrade takes a database back to the version before snapshots named an engine.
func downgrade(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, query := range []string{`DROP TRIGGER sandbox_lock_set`, `DROP TRIGGER snapshot_lock_set`, `DROP TABLE lock_sets`, `ALTER TABLE snapshots DROP COLUMN engine`, `ALTER TABLE snapshots DROP COLUMN kept_for`, `PRAGMA user_version = 8`} {
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
}
