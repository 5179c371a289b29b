package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"sync"
)

// authorityPath has the certificate of the egress gateway, if the sandbox has a network attachment.
const authorityPath = "/etc/ssl/certs/crannog.pem"

// nickname names that certificate in Chromium's database.
const nickname = "crannog"

// trust installs the certificate of the egress gateway in the database from which Chromium reads
// further roots (NSS). Chromium uses neither the system's roots nor environment variables.
type trust struct {
	authority, database string

	mu        sync.Mutex
	installed []byte
}

func newTrust(home string) *trust {
	return &trust{authority: authorityPath, database: "sql:" + home + "/.pki/nssdb"}
}

// update installs the certificate if it has changed. A restored sandbox has another one than the
// sandbox whose memory was saved, so the old one is removed.
func (t *trust) update(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	current, err := os.ReadFile(t.authority)
	if errors.Is(err, fs.ErrNotExist) {
		current, err = nil, nil // no network
	}
	if err != nil || bytes.Equal(current, t.installed) {
		return err
	}
	if t.installed != nil {
		if err := t.certutil(ctx, "-D", "-n", nickname); err != nil {
			return err
		}
		t.installed = nil
	}
	if current != nil {
		if err := t.certutil(ctx, "-A", "-t", "C,,", "-n", nickname, "-i", t.authority); err != nil {
			return err
		}
	}
	t.installed = current
	return nil
}

func (t *trust) certutil(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "certutil", append([]string{"-d", t.database}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("certutil %s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}
