package advisory_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/advisory"
	"github.com/crannog/crannog/internal/packages/store"
)

// databases are the databases of a state directory, and a reader of them.
type databases struct {
	*advisory.Store
	reader *advisory.Reader
	cache  *store.Store
	state  string
}

func newDatabases(t *testing.T) *databases {
	t.Helper()
	state := t.TempDir()
	cache, err := store.Open(state, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := store.OpenDir(state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return &databases{advisory.Open(state), advisory.NewReader(store.NewReader(dir)), cache, state}
}

func (d *databases) path(e packages.Ecosystem) string {
	return filepath.Join(d.state, store.DirName, store.AdvisoryFile(e))
}

// about is an advisory about all versions of a package before 2.0.0.
func about(id, ecosystem, name, modified, more string) string {
	return fmt.Sprintf(`{"id":%q,"modified":"%sT00:00:00Z"%s,"affected":[{"package":{"ecosystem":%q,"name":%q},"ranges":[{"type":"ECOSYSTEM","events":[{"introduced":"0"},{"fixed":"2.0.0"}]}]}]}`, id, modified, more, ecosystem, name)
}

// zipOf returns a zip of advisories.
func zipOf(t *testing.T, list ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for i, text := range list {
		f, err := w.Create(fmt.Sprintf("%d.json", i))
		if err == nil {
			_, err = io.WriteString(f, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func (d *databases) add(t *testing.T, text string) advisory.Imported {
	t.Helper()
	done, err := d.ImportFrom(t.Context(), strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// ids returns the advisories about a version.
func (d *databases) ids(t *testing.T, e packages.Ecosystem, name, version string) string {
	t.Helper()
	found, err := d.reader.Find(packages.Artifact{Ecosystem: e, Name: name, Version: version}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(packages.AdvisoryIDs(found), " ")
}

func TestImportAddsAndReplaces(t *testing.T) {
	d := newDatabases(t)
	if _, err := d.reader.Find(packages.Artifact{Ecosystem: packages.NPM, Name: "a", Version: "1.0.0"}, nil); fault.CodeOf(err) != "advisories_missing" {
		t.Fatalf("without a database: got %v, want advisories_missing", err)
	}
	done := d.add(t, zipOf(t,
		about("GHSA-1", "npm", "a", "2026-01-02", ""), about("GHSA-2", "npm", "b", "2026-01-02", ""), about("PYSEC-1", "PyPI", "c", "2026-01-02", ""),
		about("GHSA-3", "npm", "a", "2026-01-02", `,"withdrawn":"2026-01-02T00:00:00Z"`), about("GHSA-4", "RubyGems", "a", "2026-01-02", ""),
	))
	if done.Advisories != 5 || done.Withdrawn != 1 || done.Skipped != 1 || len(done.Databases) != 2 || done.Databases[0].Advisories != 2 || done.Databases[0].Packages != 2 {
		t.Errorf("the import: got %+v", done)
	}
	for _, c := range []struct {
		e                   packages.Ecosystem
		name, version, want string
	}{
		{packages.NPM, "a", "1.0.0", "GHSA-1"}, {packages.NPM, "a", "2.0.0", ""}, {packages.NPM, "b", "1.0.0", "GHSA-2"},
		{packages.NPM, "unknown", "1.0.0", ""}, {packages.PyPI, "c", "1.0", "PYSEC-1"},
	} {
		if got := d.ids(t, c.e, c.name, c.version); got != c.want {
			t.Errorf("%s:%s@%s: got %q, want %q", c.e, c.name, c.version, got, c.want)
		}
	}
	// The reader sees the database that replaced the one it has open.
	d.add(t, about("GHSA-5", "npm", "a", "2026-02-01", ""))
	if got := d.ids(t, packages.NPM, "a", "1.0.0"); got != "GHSA-1 GHSA-5" {
		t.Errorf("after another import: got %q, want both advisories", got)
	}
	d.add(t, about("GHSA-1", "npm", "other", "2025-01-01", ""))
	if got := d.ids(t, packages.NPM, "a", "1.0.0"); got != "GHSA-1 GHSA-5" {
		t.Errorf("after the import of an older form: got %q, want no change", got)
	}
	d.add(t, about("GHSA-1", "npm", "a", "2026-03-01", `,"withdrawn":"2026-03-01T00:00:00Z"`))
	if got := d.ids(t, packages.NPM, "a", "1.0.0"); got != "GHSA-5" {
		t.Errorf("after the withdrawal: got %q, want GHSA-5", got)
	}
	list, err := d.List()
	if err != nil || len(list) != 2 || list[0].Ecosystem != packages.NPM || list[0].Advisories != 2 || list[0].Imported.IsZero() || list[0].Modified.Format("2006-01-02") != "2026-02-01" {
		t.Errorf("List: got %+v, %v", list, err)
	}
	if err := d.Remove(packages.NPM); err != nil {
		t.Fatal(err)
	}
	if _, err := d.reader.Info(packages.NPM); fault.CodeOf(err) != "advisories_missing" {
		t.Errorf("after Remove: got %v, want advisories_missing", err)
	}
	for e, kind := range map[packages.Ecosystem]fault.Kind{packages.NPM: fault.NotFound, "../npm": fault.Invalid} {
		if err := d.Remove(e); fault.KindOf(err) != kind {
			t.Errorf("Remove of %s: got %v, want %s", e, err, kind)
		}
	}
}

func TestInvalidImportChangesNothing(t *testing.T) {
	d := newDatabases(t)
	d.add(t, about("GHSA-1", "npm", "a", "2026-01-02", ""))
	before, err := os.ReadFile(d.path(packages.NPM))
	if err != nil {
		t.Fatal(err)
	}
	good := about("GHSA-2", "npm", "a", "2026-01-02", "")
	for name, text := range map[string]string{
		"nothing": "", "text": "hello", "a broken zip": "PK\x03\x04hello", "an array": "[" + good + "]",
		"another ecosystem":       about("GHSA-2", "RubyGems", "a", "2026-01-02", ""),
		"an invalid entry":        zipOf(t, good, `{"id":""}`),
		"an entry that is a bomb": zipOf(t, good, strings.Repeat(" ", 16<<20)+good),
		"only a withdrawn one":    about("GHSA-2", "PyPI", "a", "2026-01-02", `,"withdrawn":"2026-01-02T00:00:00Z"`),
	} {
		if _, err := d.ImportFrom(t.Context(), strings.NewReader(text)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: got %v, want Invalid", name, err)
		}
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.ImportFrom(stopped, strings.NewReader(zipOf(t, good))); err == nil {
		t.Error("a canceled import succeeded")
	}
	after, err := os.ReadFile(d.path(packages.NPM))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the database changed: %v", err)
	}
	if list, err := d.List(); err != nil || len(list) != 1 {
		t.Errorf("List: got %+v (%v), want only npm", list, err)
	}
}

// A damaged database must never look like one without advisories.
func TestDamagedDatabaseIsAnError(t *testing.T) {
	d := newDatabases(t)
	d.add(t, zipOf(t, about("GHSA-1", "npm", "a", "2026-01-02", ""), about("GHSA-2", "npm", "b", "2026-01-02", "")))
	whole, err := os.ReadFile(d.path(packages.NPM))
	if err != nil {
		t.Fatal(err)
	}
	put := func(content []byte) {
		t.Helper()
		// As a new file, because the reader recognises a replaced one.
		if err := os.WriteFile(d.path(packages.NPM)+".x", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(d.path(packages.NPM)+".x", d.path(packages.NPM)); err != nil {
			t.Fatal(err)
		}
	}
	find := func() (errs []error) {
		for _, name := range []string{"a", "b"} {
			if found, err := d.reader.Find(packages.Artifact{Ecosystem: packages.NPM, Name: name, Version: "1.0.0"}, nil); err != nil || len(found) != 1 {
				errs = append(errs, fmt.Errorf("%s: %d advisories: %w", name, len(found), err))
			}
		}
		return errs
	}
	for at := range whole {
		content := bytes.Clone(whole)
		content[at] ^= 0x20
		put(content)
		errs := find()
		if len(errs) == 0 {
			t.Errorf("a changed byte at %d was not noticed", at)
		}
		for _, err := range errs {
			if fault.CodeOf(err) != "advisories_damaged" {
				t.Fatalf("a changed byte at %d: got %v, want advisories_damaged", at, err)
			}
		}
	}
	for _, n := range []int{0, 1, 40, len(whole) / 2, len(whole) - 1} {
		put(whole[:n])
		if _, err := d.reader.Info(packages.NPM); fault.CodeOf(err) != "advisories_damaged" {
			t.Errorf("the first %d bytes: got %v, want advisories_damaged", n, err)
		}
	}
	if list, err := d.List(); err != nil || len(list) != 1 || !list[0].Damaged {
		t.Errorf("List: got %+v (%v), want a damaged one", list, err)
	}
	if _, err := d.ImportFrom(t.Context(), strings.NewReader(about("GHSA-3", "npm", "a", "2026-01-02", ""))); fault.CodeOf(err) != "advisories_damaged" {
		t.Errorf("an import into a damaged database: got %v, want advisories_damaged", err)
	}
	put(whole)
	if errs := find(); len(errs) > 0 {
		t.Errorf("the whole file again: %v", errs)
	}
}

// The database of one ecosystem is not that of another one.
func TestDatabaseOfAnotherEcosystemIsRefused(t *testing.T) {
	d := newDatabases(t)
	d.add(t, about("GHSA-1", "npm", "a", "2026-01-02", ""))
	if err := os.Rename(d.path(packages.NPM), d.path(packages.PyPI)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.reader.Info(packages.PyPI); fault.CodeOf(err) != "advisories_damaged" {
		t.Errorf("got %v, want advisories_damaged", err)
	}
}

func TestUnknownReleaseOfDistributionIsRefused(t *testing.T) {
	d := newDatabases(t)
	d.add(t, about("DSA-1", "Debian:12", "openssl", "2026-01-02", ""))
	libssl := packages.Artifact{Ecosystem: packages.Apt, Name: "libssl3", Version: "1.0.0-1+b1"}
	for release, want := range map[string]string{"Debian:12": "DSA-1", "Debian": "DSA-1", "": "DSA-1", "Ubuntu:22.04": "advisories_missing", "Debian:13": "advisories_missing"} {
		found, err := d.reader.Find(libssl, &packages.Origin{Name: "openssl", Version: "1.0.0-1", Releases: []string{release}})
		got := strings.Join(packages.AdvisoryIDs(found), " ")
		if err != nil {
			got = fault.CodeOf(err)
		}
		if got != want {
			t.Errorf("a package of %q: got %s, want %s", release, got, want)
		}
	}
	if got := d.ids(t, packages.Apt, "libssl3", "1.0.0-1"); got != "" {
		t.Errorf("under the name of the binary package: got %s, want none", got)
	}
}

func TestCacheKeepsDatabases(t *testing.T) {
	d := newDatabases(t)
	d.add(t, about("GHSA-1", "npm", "a", "2026-01-02", ""))
	if _, err := d.cache.Prune(0); err != nil {
		t.Fatal(err)
	}
	if done, err := d.cache.Verify(t.Context()); err != nil || len(done.Damaged) != 0 {
		t.Errorf("Verify: got %+v, %v; want nothing damaged", done, err)
	}
	if got := d.ids(t, packages.NPM, "a", "1.0.0"); got != "GHSA-1" {
		t.Errorf("after prune: got %q, want the advisory", got)
	}
	info, err := os.Stat(d.path(packages.NPM))
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the file has mode %v (%v), want one that the gateway can read", info.Mode(), err)
	}
}
