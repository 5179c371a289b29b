package secrets_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/store"
)

// Threat S9 (docs/reference/threat-model.md): the database without the key file reveals nothing,
// and neither of the two files shows a value.
func TestCopyOfDatabaseRevealsNothing(t *testing.T) {
	f := open(t, t.TempDir(), secrets.Options{})
	f.set(t, local, "A", canary)
	if f.value(t, local, "A").Value.Reveal() != canary {
		t.Fatal("with the key the value is wrong")
	}
	for path, data := range files(t, f.dir) {
		if strings.Contains(data, canary) {
			t.Errorf("%s shows the value", path)
		}
	}
	stolen := t.TempDir()
	for path, data := range files(t, f.dir) {
		if strings.Contains(filepath.Base(path), store.FileName) {
			if err := os.WriteFile(filepath.Join(stolen, filepath.Base(path)), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	thief := open(t, stolen, secrets.Options{})
	if info, err := thief.Find(t.Context(), local, "A"); err != nil || info.Name != "A" {
		t.Fatalf("the copied database has no secret A: %v", err)
	}
	_, err := thief.Resolve(t.Context(), local, "A")
	wantFault(t, err, fault.NotFound, "secrets_key_missing")
	// No new key is created beside secrets whose key is lost.
	_, err = thief.Set(t.Context(), local, "B", []byte(canary), nil)
	wantFault(t, err, fault.NotFound, "secrets_key_missing")
	// Another key does not help.
	other := open(t, t.TempDir(), secrets.Options{})
	other.set(t, local, "X", canary)
	copyFile(t, other.key, thief.key)
	_, err = thief.Resolve(t.Context(), local, "A")
	wantFault(t, err, fault.Unavailable, "secrets_key_wrong")
	// The right key opens the secret.
	copyFile(t, f.key, thief.key)
	if thief.value(t, local, "A").Value.Reveal() != canary {
		t.Error("with the restored key the value is wrong")
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Threat S9 (docs/reference/threat-model.md): an attacker who can write to the database cannot have
// a sealed value opened under another name, for another owner, as another version, or with only one
// of its two parts replaced.
func TestMovedSealedValuesDoNotOpen(t *testing.T) {
	const (
		from  = `(SELECT %[1]s FROM secret_versions WHERE secret = (SELECT id FROM secrets WHERE owner = 'kalice' AND name = 'A') AND version = 2)`
		toB   = `WHERE secret = (SELECT id FROM secrets WHERE owner = 'kalice' AND name = 'B')`
		toA1  = `WHERE secret = (SELECT id FROM secrets WHERE owner = 'kalice' AND name = 'A') AND version = 1`
		ofBob = `WHERE secret = (SELECT id FROM secrets WHERE owner = 'kbob')`
	)
	box, key := "sealed = "+fmt.Sprintf(from, "sealed"), "wrapped = "+fmt.Sprintf(from, "wrapped")
	for name, forged := range map[string]struct {
		caller secrets.Caller
		ref    string
		query  string
	}{
		"another name":            {alice, "B", `UPDATE secret_versions SET ` + box + `, ` + key + ` ` + toB},
		"another name, box only":  {alice, "B", `UPDATE secret_versions SET ` + box + ` ` + toB},
		"another name, key only":  {alice, "B", `UPDATE secret_versions SET ` + key + ` ` + toB},
		"another owner":           {bob, "A", `UPDATE secret_versions SET ` + box + `, ` + key + ` ` + ofBob},
		"another version":         {alice, "A", `UPDATE secret_versions SET ` + box + `, ` + key + ` ` + toA1},
		"a row with a new name":   {alice, "C", `UPDATE secrets SET name = 'C' WHERE owner = 'kalice' AND name = 'A'`},
		"a row with a new owner":  {bob, "B", `UPDATE secrets SET owner = 'kbob' WHERE owner = 'kalice' AND name = 'B'`},
		"one bit of the box":      {alice, "B", `UPDATE secret_versions SET sealed = CAST(substr(sealed, 1, length(sealed) - 1) || x'00' AS BLOB) ` + toB},
		"the version of a secret": {alice, "A", `UPDATE secrets SET version = 3 WHERE name = 'A'`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := open(t, dir, secrets.Options{})
			f.set(t, alice, "A", canary)
			f.set(t, alice, "B", "the value of alice's B")
			f.set(t, bob, "A", "the value of bob's A")
			if _, err := f.Rotate(t.Context(), alice, "A", []byte("the second value of A"), nil); err != nil {
				t.Fatal(err)
			}
			f.value(t, alice, "A")
			f.value(t, alice, "B")
			f.value(t, bob, "A")
			db, err := sql.Open("sqlite", filepath.Join(dir, store.FileName))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if res, err := db.Exec(forged.query); err != nil {
				t.Fatal(err)
			} else if n, err := res.RowsAffected(); err != nil || n == 0 {
				t.Fatalf("the forging query changed %d rows, %v", n, err)
			}
			r, err := f.Resolve(t.Context(), forged.caller, forged.ref)
			if err == nil {
				t.Fatalf("Resolve: got %q, want an error", r.Value.Reveal())
			}
			if strings.Contains(err.Error(), canary) || fault.KindOf(err) != fault.Internal {
				t.Errorf("Resolve: got %v, want an internal error without the value", err)
			}
		})
	}
}

func TestUnsafeKeyFilesAreRejected(t *testing.T) {
	f := open(t, t.TempDir(), secrets.Options{})
	f.set(t, local, "A", canary)
	check := func(code string) {
		t.Helper()
		_, err := f.Resolve(t.Context(), local, "A")
		wantFault(t, err, fault.Denied, code)
		_, err = f.Set(t.Context(), local, "B", []byte(canary), nil)
		wantFault(t, err, fault.Denied, code)
		if fault.HintOf(err) == "" && code == "secrets_key_not_private" {
			t.Error("no hint names what to do")
		}
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o601} {
		if err := os.Chmod(f.key, mode); err != nil {
			t.Fatal(err)
		}
		check("secrets_key_not_private")
	}
	if err := os.Chmod(f.key, 0o600); err != nil {
		t.Fatal(err)
	}
	f.value(t, local, "A")
	if os.Geteuid() == 0 {
		if err := os.Chown(f.key, 12345, 0); err != nil {
			t.Fatal(err)
		}
		check("secrets_key_not_private")
		if err := os.Chown(f.key, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	// A link would let another user choose the file that is read.
	if err := os.Rename(f.key, f.key+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(f.key+".moved", f.key); err != nil {
		t.Fatal(err)
	}
	_, err := f.Resolve(t.Context(), local, "A")
	wantFault(t, err, fault.Unavailable, "secrets_key_unreadable")
	if err := os.Remove(f.key); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(f.key, 0o600); err != nil {
		t.Fatal(err)
	}
	check("secrets_key_not_file")
	if err := os.Remove(f.key); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.key, []byte("crannog-secrets-key-1 AAAA"+canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = f.Resolve(t.Context(), local, "A")
	wantFault(t, err, fault.Unavailable, "secrets_key_damaged")
}

// Several processes that store their first secrets at the same time create only one key.
func TestConcurrentSetsCreateOneKey(t *testing.T) {
	dir := t.TempDir()
	var vaults []*fixture
	for range 4 {
		vaults = append(vaults, open(t, dir, secrets.Options{}))
	}
	var wg sync.WaitGroup
	for i, f := range vaults {
		for j := range 4 {
			wg.Go(func() {
				if _, err := f.Set(t.Context(), local, fmt.Sprintf("S%d_%d", i, j), []byte(canary), nil); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	for i := range vaults {
		for j := range 4 {
			if vaults[0].value(t, local, fmt.Sprintf("S%d_%d", i, j)).Value.Reveal() != canary {
				t.Error("a value was lost")
			}
		}
	}
	key, err := os.ReadFile(vaults[0].key)
	if err != nil || strings.Count(string(key), "\n") != 1 {
		t.Errorf("the key file has %d keys (%v), want 1", strings.Count(string(key), "\n"), err)
	}
	info, err := os.Stat(vaults[0].key)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key file: got %v (%v), want 0600", info.Mode(), err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".secrets-key-*"))
	if len(left) != 0 {
		t.Errorf("temporary files were not removed: %v", left)
	}
}

// The key is rotated while secrets are created and read. No secret is lost, and the old key opens
// none of them.
func TestRotateKeyDuringUseLosesNothing(t *testing.T) {
	dir := t.TempDir()
	f, other := open(t, dir, secrets.Options{}), open(t, dir, secrets.Options{})
	f.set(t, local, "A", canary)
	for i := range 250 {
		f.set(t, alice, fmt.Sprintf("S%d", i), fmt.Sprintf("value number %d", i))
	}
	old, err := os.ReadFile(f.key)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := other.Set(t.Context(), bob, fmt.Sprintf("S%d", i), []byte(canary), nil); err != nil {
				t.Error(err)
			}
			if r, err := other.Resolve(t.Context(), local, "A"); err != nil || r.Value.Reveal() != canary {
				t.Error(err)
			}
		})
	}
	moved, err := f.RotateKey(t.Context(), local)
	if err != nil || moved < 251 {
		t.Errorf("RotateKey: moved %d secrets (%v), want at least 251", moved, err)
	}
	wg.Wait()
	generation := f.value(t, local, "A").Generation
	for i := range 250 {
		if r := other.value(t, alice, fmt.Sprintf("S%d", i)); r.Value.Reveal() != fmt.Sprintf("value number %d", i) {
			t.Error("a value was lost")
		}
	}
	for i := range 20 {
		f.value(t, bob, fmt.Sprintf("S%d", i))
	}
	if generation != other.value(t, local, "A").Generation {
		t.Error("the key's rotation changed a generation")
	}
	fresh, err := os.ReadFile(f.key)
	if err != nil || strings.Count(string(fresh), "\n") != 1 || strings.Contains(string(fresh), strings.TrimSpace(string(old))) {
		t.Errorf("the old key is still there, %v", err)
	}
	if err := os.WriteFile(f.key, old, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = f.Resolve(t.Context(), local, "A")
	wantFault(t, err, fault.Unavailable, "secrets_key_wrong")
}

// An interrupted rotation leaves two keys. All secrets still open, and the next rotation completes
// it.
func TestInterruptedRotationIsCompleted(t *testing.T) {
	f := open(t, t.TempDir(), secrets.Options{})
	f.set(t, local, "A", canary)
	old, err := os.ReadFile(f.key)
	if err != nil {
		t.Fatal(err)
	}
	another := open(t, t.TempDir(), secrets.Options{})
	another.set(t, local, "X", canary)
	fresh, err := os.ReadFile(another.key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.key, append(fresh, old...), 0o600); err != nil {
		t.Fatal(err)
	}
	f.set(t, local, "B", canary)
	f.value(t, local, "A")
	if moved, err := f.RotateKey(t.Context(), local); err != nil || moved != 2 {
		t.Errorf("RotateKey: moved %d secrets (%v), want 2", moved, err)
	}
	f.value(t, local, "A")
	f.value(t, local, "B")
	if key, _ := os.ReadFile(f.key); strings.Count(string(key), "\n") != 1 {
		t.Error("more than one key is left")
	}
}
