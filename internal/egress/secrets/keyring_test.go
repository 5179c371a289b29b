//go:build !race

// The library's keyring for tests is a map without a lock, so the race detector reports a race. A
// real keyring is another process.

package secrets_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/zalando/go-keyring"

	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/fault"
)

// sessionEnv returns the environment of a desktop session.
func sessionEnv(name string) string {
	if name == "DBUS_SESSION_BUS_ADDRESS" {
		return "unix:path=/nonexistent"
	}
	return ""
}

// The keyring is the library's replacement in memory. So this test checks how the package uses a
// keyring, and not the keyring.
func TestKeyringStoresKeys(t *testing.T) {
	keyring.MockInit()
	dir := t.TempDir()
	lock := filepath.Join(dir, "lock")
	keys, err := secrets.NewKeyring(dir, lock, sessionEnv)
	if err != nil {
		t.Fatal(err)
	}
	f, other := open(t, dir, secrets.Options{Keys: keys}), open(t, dir, secrets.Options{Keys: keys})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			vault := f
			if i%2 == 1 {
				vault = other
			}
			if _, err := vault.Set(t.Context(), local, fmt.Sprintf("S%d", i), []byte(canary), nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if moved, err := f.RotateKey(t.Context(), local); err != nil || moved != 8 {
		t.Errorf("RotateKey: moved %d secrets (%v), want 8", moved, err)
	}
	for i := range 8 {
		if other.value(t, local, fmt.Sprintf("S%d", i)).Value.Reveal() != canary {
			t.Error("a value was lost")
		}
	}
	if _, err := os.Stat(f.key); !errors.Is(err, os.ErrNotExist) {
		t.Error("a key file was made beside the keyring")
	}
	// If the entry is missing, no new key is created, because existing secrets need the old one.
	keyring.MockInit()
	_, err = f.Resolve(t.Context(), local, "S1")
	wantFault(t, err, fault.NotFound, "secrets_key_missing")
	_, err = f.Set(t.Context(), local, "NEW", []byte(canary), nil)
	wantFault(t, err, fault.NotFound, "secrets_key_missing")

	keyring.MockInitWithError(errors.New("locked"))
	_, err = f.Resolve(t.Context(), local, "S1")
	wantFault(t, err, fault.Unavailable, "keyring_failed")

	_, err = secrets.NewKeyring(dir, lock, func(string) string { return "" })
	wantFault(t, err, fault.Unavailable, "keyring_missing")
}
