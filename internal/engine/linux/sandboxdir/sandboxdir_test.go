package sandboxdir_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

type record struct{ Created time.Time }

func describe(dir string) (time.Time, bool, error) {
	var rec record
	err := sandboxdir.Read(dir, &rec)
	return rec.Created, err == nil, err
}

func TestList(t *testing.T) {
	parent := t.TempDir()
	const complete, interrupted = "iaaaaaaaaaaaaaaaaaaa", "ibbbbbbbbbbbbbbbbbbb"
	for _, name := range []string{complete, interrupted, ".other", "not a sandbox"} {
		if err := os.Mkdir(filepath.Join(parent, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	created := time.Unix(1, 0).UTC()
	if err := sandboxdir.Write(filepath.Join(parent, complete), record{created}); err != nil {
		t.Fatal(err)
	}
	list, err := sandboxdir.List(t.Context(), parent, describe)
	want := []engine.Status{{ID: complete, State: engine.Running, Created: created}, {ID: interrupted, State: engine.Stopped}}
	if err != nil || len(list) != 2 || list[0] != want[0] || list[1] != want[1] {
		t.Errorf("listed %+v, want %+v; %v", list, want, err)
	}
	// An unreadable record does not show whether its sandbox runs.
	if err := os.Mkdir(filepath.Join(parent, interrupted, sandboxdir.RecordName), 0o700); err != nil {
		t.Fatal(err)
	}
	if list, err := sandboxdir.List(t.Context(), parent, describe); !sandboxdir.Unreadable(err) {
		t.Errorf("listed %+v; %v", list, err)
	}
}

// A sandbox of an earlier version keeps the name of its record.
func TestRecordOfEarlierVersion(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, sandboxdir.EarlierName)
	if err := os.WriteFile(path, []byte(`{"Created":"1970-01-01T00:00:01Z"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	created, _, err := describe(dir)
	if err != nil || !created.Equal(time.Unix(1, 0)) {
		t.Errorf("read %v, %v", created, err)
	}
	if err := sandboxdir.Write(dir, record{time.Unix(2, 0)}); err != nil {
		t.Fatal(err)
	}
	created, _, err = describe(dir)
	if err != nil || !created.Equal(time.Unix(2, 0)) {
		t.Errorf("read %v, %v after a change", created, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != sandboxdir.EarlierName {
		t.Errorf("the directory contains %v, %v", entries, err)
	}
}

func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sandbox")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700), sandboxdir.Write(dir, record{})); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second removal finds nothing to do
		if err := sandboxdir.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the directory still exists: %v", err)
		}
	}
}

func TestShortAliasWorksAfterMove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if l, err := net.Listen("unix", filepath.Join(dir, "socket")); err == nil {
		l.Close()
		t.Fatal("control: the whole path is short enough")
	}
	short, done, err := sandboxdir.Short(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	moved := filepath.Join(filepath.Dir(dir), "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(short, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := os.Lstat(filepath.Join(moved, "socket")); err != nil {
		t.Error(err)
	}
}
