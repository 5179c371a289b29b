package secrets

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
)

// KeyFileName is the key file's name in the state directory.
const KeyFileName = "secrets.key"

// NewKeyFile returns a Local that stores keys in a file, which is created with the first secret.
func NewKeyFile(path string) *Local { return &Local{keyFile{path}, path + ".lock"} }

// keyFile is a file of mode 0600.
type keyFile struct{ path string }

func (f keyFile) String() string { return "the key file " + f.path }

// writeOptions make a key file durable, because a secret must never be on the disk before its key.
var writeOptions = durable.Options{Draft: ".secrets-key-*", Sync: true}

// create creates the file. If another process has created it, that file remains.
func (f keyFile) create(data []byte) error {
	if err := durable.Create(f.path, data, writeOptions); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make key file: %w", err)
	}
	return nil
}

// load reads the file after checking that no other user could have read it.
func (f keyFile) load() ([]byte, error) {
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(f)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "secrets_key_unreadable", f.String()+" of the secrets cannot be read")
	}
	defer file.Close()
	if err := checkPrivate(file); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	return data, nil
}

func missing(p keyStore) error {
	return fault.Newf(fault.NotFound, codeKeyMissing, "%s of the secrets is missing", p).
		WithHint("restore it from a backup; without it the secrets cannot be opened, only removed and set again")
}

// checkPrivate rejects a file that other users can read, because its key may have leaked. It also
// rejects a file of another user, who knows the key.
func checkPrivate(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("inspect key file: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.Mode().IsRegular():
		return fault.Newf(fault.Denied, "secrets_key_not_file", "%s is not a regular file", f.Name())
	case int(st.Uid) != os.Geteuid():
		return fault.Newf(fault.Denied, "secrets_key_not_private", "the key file %s belongs to another user (uid %d)", f.Name(), st.Uid).
			WithHint("make it yours, if you know who wrote it: chown " + fmt.Sprint(os.Geteuid()) + " " + f.Name())
	case info.Mode().Perm()&0o077 != 0:
		return fault.Newf(fault.Denied, "secrets_key_not_private", "the key file %s can be used by others (mode %#o)", f.Name(), info.Mode().Perm()).
			WithHint("chmod 600 " + f.Name() + ", and rotate the key if others may have read it: crannog secret rotate-key")
	}
	return nil
}

func (f keyFile) replace(data []byte) error {
	if err := durable.Replace(f.path, data, writeOptions); err != nil {
		return fmt.Errorf("replace key file: %w", err)
	}
	return nil
}
