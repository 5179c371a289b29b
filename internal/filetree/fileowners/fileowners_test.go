package fileowners_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/filetree/fileowners"
)

func TestOwnerIsInheritedFromDirectory(t *testing.T) {
	table := fileowners.Table{
		"/srv": {UID: 33, GID: 34, SetID: 0o2000}, "/srv/roots": {}, "/bin/su": {SetID: 0o4000}, "/srv/a/b": {UID: 1, GID: 2},
	}
	for file, want := range map[string]fileowners.Owner{
		"/srv": {UID: 33, GID: 34, SetID: 0o2000}, "/srv/x": {UID: 33, GID: 34}, "/srv/a": {UID: 33, GID: 34}, "/srv/a/c/d": {UID: 33, GID: 34},
		"/srv/a/b/c": {UID: 1, GID: 2}, "/srv/roots": {}, "/srv/roots/x/y": {}, "/bin/su": {SetID: 0o4000},
	} {
		if got, ok := table.Of(file); !ok || got != want {
			t.Errorf("Of(%s): got %+v, %v, want %+v", file, got, ok, want)
		}
	}
	for _, file := range []string{"/", "/srvs", "/bin", "/bin/sudo", ""} {
		if got, ok := table.Of(file); ok {
			t.Errorf("Of(%s): got %+v, want no entry", file, got)
		}
	}
	if _, ok := fileowners.Table(nil).Of("/srv"); ok {
		t.Error("a nil table has an owner for /srv")
	}
}

func TestParseReadsText(t *testing.T) {
	table := fileowners.Table{"/a \"\n": {UID: 1<<32 - 2, GID: 5, SetID: 0o6000}, "/b": {}}
	data, err := table.Text()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "owners")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := fileowners.Read(file)
	if err != nil || len(got) != len(table) {
		t.Fatalf("Read: got %v, error %v", got, err)
	}
	for name, owner := range table {
		if got[name] != owner {
			t.Errorf("%q: got %+v, want %+v", name, got[name], owner)
		}
	}
	for _, text := range []string{"{", `{"a":{}}`, `{"/a/":{}}`, `{"/a/../b":{}}`, `{"/a":{"u":-1}}`, `{"/a":{"u":4294967296}}`} {
		if _, err := fileowners.Parse([]byte(text)); err == nil {
			t.Errorf("Parse(%s): got no error", text)
		}
	}
	if _, err := fileowners.Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("Read of a missing file: got no error")
	}
}
