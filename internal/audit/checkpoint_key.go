package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"github.com/crannog/crannog/internal/fault"
)

// ReadKey returns the verifier key of the audit log in a directory. The log need not be open.
// ReadKey returns NotFound if there is none.
func ReadKey(dir string) (string, error) {
	text, err := readKey(filepath.Join(dir, keyName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.Newf(fault.NotFound, "record_missing", "there is no audit log in %s", dir)
	}
	if err != nil {
		return "", fmt.Errorf("key of the audit log: %w", err)
	}
	return verifierKey(text)
}

// CheckKey returns an error if key is not a verifier key.
func CheckKey(key string) error {
	if _, err := note.NewVerifier(key); err != nil {
		return fault.Wrap(err, fault.Invalid, "key_invalid", "the key is not a verifier key of an audit log").
			WithHint("`crannog audit key --record` prints it")
	}
	return nil
}

// OpenCheckpoint checks that a note is a tree head signed with the given verifier key, and parses
// it.
func OpenCheckpoint(text, key string) (Checkpoint, error) {
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return Checkpoint{}, fault.Wrap(err, fault.Invalid, "key_invalid", "the key is not a verifier key of an audit log")
	}
	c, _, err := openCheckpoint(text, verifier)
	if err != nil {
		return Checkpoint{}, fault.New(fault.Invalid, "checkpoint_invalid", err.Error())
	}
	return c, nil
}
