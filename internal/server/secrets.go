package server

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/store"
)

// transitPrefix precedes the name of a key in a Vault server.
const transitPrefix = "transit:"

// openSecrets opens the vault of secrets. The key file is created with the first secret. So a user
// without secrets has no key to protect.
func openSecrets(o Options, s *store.Store) (*secrets.Vault, error) {
	var keys secrets.Keeper
	switch name, transit := strings.CutPrefix(o.SecretsKey, transitPrefix); {
	case o.SecretsKey == "" || o.SecretsKey == "file":
		keys = secrets.NewKeyFile(filepath.Join(o.StateDir, secrets.KeyFileName))
	case o.SecretsKey == "keyring":
		var err error
		// Each state directory has an entry of its own.
		if keys, err = secrets.NewKeyring(o.StateDir, filepath.Join(o.StateDir, secrets.KeyFileName+".lock"), os.Getenv); err != nil {
			return nil, err
		}
	case transit:
		remote, err := secrets.NewRemote(os.Getenv, nil)
		if err != nil {
			return nil, err
		}
		mount, key, _ := strings.Cut(name, "/")
		if keys, err = secrets.NewTransit(remote, mount, key); err != nil {
			return nil, err
		}
	default:
		return nil, fault.New(fault.Invalid, "secrets_key_invalid", "secrets_key is not file, keyring or transit:mount/key").
			WithHint("for example secrets_key = \"transit:transit/crannog\"")
	}
	var lines []string
	for line := range strings.SplitSeq(o.SecretsExec, ";") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return secrets.New(secrets.Options{Store: s, Keys: keys, Exec: lines, Getenv: os.Getenv}), nil
}
