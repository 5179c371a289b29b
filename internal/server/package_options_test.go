package server

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/keyring"
	packagestore "github.com/crannog/crannog/internal/packages/store"
)

// The egress gateway finds the keys of package_keyrings through its descriptor of the cache.
func TestPackageKeyringsReachTheGateway(t *testing.T) {
	key, err := openpgp.NewEntity("archive", "", "archive@example.test", nil)
	if err != nil {
		t.Fatal(err)
	}
	var public bytes.Buffer
	if err := key.Serialize(&public); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "archive.gpg")
	if err := os.WriteFile(path, public.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	// known returns how many keys a gateway of a new state directory knows.
	known := func(files ...string) (int, error) {
		o := Options{StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Packages: PackageOptions{Keyrings: files}}
		if _, err := openPackages(o); err != nil {
			return 0, err
		}
		g := &egressGateway{stateDir: o.StateDir, log: o.Log, keyrings: files}
		for _, ecosystem := range []string{"npm", "apt"} {
			p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Packages: policy.Packages{Cache: []string{ecosystem}}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := g.refreshKeys(p); err != nil {
				return 0, err
			}
			// Reading the host's keys takes as long as starting a sandbox.
			_, err = os.Stat(filepath.Join(o.StateDir, packagestore.DirName, packagestore.KeyringFile))
			if read := err == nil; read != (ecosystem == "apt" || len(files) > 0) {
				t.Errorf("with %s in packages.cache and the files %q: the keys were read: %v", ecosystem, files, read)
			}
		}
		dir, err := packagestore.OpenDir(o.StateDir)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		keys, err := keyring.NewReader(packagestore.NewReader(dir)).Keys()
		return keys.Len(), err
	}
	host, err := known()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := known(path); err != nil || n != host+1 {
		t.Errorf("with a file: got %d keys (%v), want %d", n, err, host+1)
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // to show that it is refused
		t.Fatal(err)
	}
	if _, err := known(path); fault.CodeOf(err) != "package_keyring_invalid" || fault.HintOf(err) == "" {
		t.Errorf("with a file that everybody can change: got %v, want package_keyring_invalid with a hint", err)
	}
}
