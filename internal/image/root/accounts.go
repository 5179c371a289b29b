package root

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/image/layer"
)

// sandboxUser is the ID of the user that owns the workspace in a sandbox.
const sandboxUser = engine.UserID

// maxAccounts bounds the size of a file of an image's user database, in bytes.
const maxAccounts = 4 << 20

// addAccounts adds the account "user", which owns the workspace and which clients refer to, and the
// files of /etc that the guest writes. An image without a user database gets one.
func addAccounts(t *layer.Tree) error {
	for _, f := range []struct{ name, line, none string }{
		{"etc/passwd", fmt.Sprintf("user:x:%d:%d:user:/home/user:/bin/sh\n", sandboxUser, sandboxUser), "root:x:0:0:root:/root:/bin/sh\n"},
		{"etc/group", fmt.Sprintf("user:x:%d:\n", sandboxUser), "root:x:0:\n"},
	} {
		existing, err := t.ReadFile(f.name, maxAccounts)
		if errors.Is(err, fs.ErrNotExist) {
			existing, err = []byte(f.none), nil
		}
		if err != nil {
			return fmt.Errorf("/%s: %w", f.name, err)
		}
		text := string(existing)
		if hasAccount(text, "user") {
			continue
		}
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		// The line is appended, so that another account with this ID keeps its name.
		if err := t.WriteFile(f.name, []byte(text+f.line), 0o644); err != nil {
			return fmt.Errorf("/%s: %w", f.name, err)
		}
	}
	// Without a line here, su and sudo treat the account as expired. No password unlocks it.
	for name, line := range map[string]string{"etc/shadow": "user:*:::::::\n", "etc/gshadow": "user:!::\n"} {
		existing, err := t.ReadFile(name, maxAccounts)
		if errors.Is(err, fs.ErrNotExist) || err == nil && hasAccount(string(existing), "user") {
			continue
		}
		if err == nil {
			if len(existing) > 0 && existing[len(existing)-1] != '\n' {
				line = "\n" + line
			}
			err = t.AppendFile(name, []byte(line))
		}
		if err != nil {
			return fmt.Errorf("/%s: %w", name, err)
		}
	}
	for name, content := range map[string]string{
		"etc/hosts":    "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
		"etc/hostname": "crannog\n", "etc/resolv.conf": "",
		// git refuses to work on files of another user, and the workspace does not belong to root.
		"etc/gitconfig": "[safe]\n\tdirectory = *\n",
	} {
		if err := writeIfMissing(t, name, content); err != nil {
			return fmt.Errorf("/%s: %w", name, err)
		}
	}
	return nil
}

// writeIfMissing writes a file if the image does not have it. A link is replaced, because it may be
// broken, as resolv.conf is on many systems.
func writeIfMissing(t *layer.Tree, name, content string) error {
	if exists, err := t.IsFile(name); err != nil || exists {
		return err
	}
	return t.WriteFile(name, []byte(content), 0o644)
}

// hasAccount reports whether a user database has an account.
func hasAccount(text, name string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+":") {
			return true
		}
	}
	return false
}
