package keyring

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/packages/store"
)

// hostPatterns are the files whose keys the host's own apt, or the distribution's sources for it,
// trust.
var hostPatterns = []string{
	"/usr/share/keyrings/*archive-keyring.gpg", "/usr/share/keyrings/*archive-keyring.pgp", "/usr/share/keyrings/*archive-keyring.asc",
	"/etc/apt/trusted.gpg.d/*.gpg", "/etc/apt/trusted.gpg.d/*.asc",
}

// Refresh writes the keys of the host, and those of further files, into the package cache of a state
// directory, which must exist. It fails if a further file cannot be used. A file of the host that
// cannot be used is ignored, so its keys are unknown.
func Refresh(stateDir string, further []string, log *slog.Logger) error {
	return refresh(filepath.Join(stateDir, store.DirName, store.KeyringFile), hostPatterns, 0, further, log)
}

func refresh(path string, patterns []string, owner int, further []string, log *slog.Logger) error {
	// Every command without a server comes here, and reading the keys would be a tenth of its work.
	before := fmt.Sprintf("%d %d\n", owner, os.Geteuid()) + stateOf(patterns, further)
	if known, err := os.ReadFile(path + stateSuffix); err == nil && string(known) == before {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
	}
	if err := write(path, patterns, owner, further, log); err != nil {
		return err
	}
	return durable.Replace(path+stateSuffix, []byte(before), durable.Options{Draft: ".draft-*", Mode: 0o600})
}

// stateSuffix is appended to the path of the keys, for the file with the state of their sources.
const stateSuffix = ".state"

// stateOf returns a text that changes with the files of keys: with their content, and with who can
// change them.
func stateOf(patterns, further []string) string {
	names := slices.Clone(further)
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			continue // write reports it
		}
		names = append(names, found...)
	}
	var out strings.Builder
	for _, name := range names {
		var st unix.Stat_t
		err := unix.Stat(name, &st)
		fmt.Fprintf(&out, "%q %v %d:%d %d:%o %d %d.%d %d.%d\n", name, err, st.Dev, st.Ino, st.Uid, st.Mode, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec)
	}
	return out.String()
}

// write writes the keys of files into a file.
func write(path string, patterns []string, owner int, further []string, log *slog.Logger) error {
	var all [][]byte
	add := func(k Keys) {
		if !slices.ContainsFunc(all, func(other []byte) bool { return bytes.Equal(other, k.raw) }) {
			all = append(all, k.raw)
		}
	}
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			k, err := read(name, owner)
			if err != nil {
				log.Info("a keyring of the host is ignored", "file", name, "error", err)
				continue
			}
			add(k)
		}
	}
	for _, name := range further {
		k, err := read(name, 0, os.Geteuid())
		if err != nil {
			return fault.Wrap(err, fault.Invalid, "package_keyring_invalid", fmt.Sprintf("the file %q of the setting package_keyrings cannot be used: %v", name, err)).
				WithHint("name a file of public OpenPGP keys that only root or the server's user can change")
		}
		add(k)
	}
	text := bytes.Join(all, nil)
	if len(text) > 0 {
		if _, err := Parse(text); err != nil {
			return fault.Wrap(err, fault.Invalid, "package_keyring_invalid", "the keys of archives cannot be used together: "+err.Error())
		}
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	// The egress gateway reads it as a user without rights.
	return durable.Replace(path, text, durable.Options{Draft: ".draft-*", Mode: 0o644, Sync: true})
}

// read reads a file of keys that belongs to one of some users, and that no other user can change: a
// key that somebody else can add would vouch for lists of theirs.
func read(name string, owners ...int) (Keys, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err
		}
		return Keys{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Keys{}, err
	}
	about, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.Mode().IsRegular():
		return Keys{}, errors.New("it is not a file")
	case !slices.Contains(owners, int(about.Uid)):
		return Keys{}, fmt.Errorf("it belongs to the user %d", about.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return Keys{}, fmt.Errorf("other users can change it (mode %04o)", info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return Keys{}, err
	}
	return Parse(data)
}
