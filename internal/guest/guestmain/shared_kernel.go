package guestmain

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/relay"
)

// plain configures a guest that shares the host's kernel and may not be root, as in a container
// without capabilities.
func plain(p platform, cfg *guest.Config) (platform, error) {
	// Programs inside run as the guest's user. A program that could trace the guest could read its
	// tokens and remove the sandbox's time limits.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return p, fmt.Errorf("refuse to be traced: %w", err)
	}
	if err := fill(filepath.Join(p.root, guestboot.FillDir), p.root); err != nil {
		return p, err
	}
	// The host's kernel lacks the call, and a seccomp profile may return any error for it.
	p.become = func(string, bool) error { return unix.ENOSYS }
	// A guest that is not root cannot start programs as root. Without this check, a command for
	// root would silently run as the sandbox's user.
	cfg.NoRoot = cfg.NoRoot || os.Geteuid() != 0
	return p, nil
}

// fill copies the tree at from over the tree at to, without replacing existing files. It fills an
// empty tmpfs with the image's files at that path. Files that this user may not read are skipped,
// because only root could use them.
func fill(from, to string) error {
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return fs.SkipDir
		}
		if err != nil {
			return err
		}
		target := filepath.Join(to, path[len(from):])
		info, err := entry.Info()
		if err != nil {
			return err
		}
		switch info.Mode().Type() { //nolint:exhaustive // other types are skipped
		case fs.ModeDir:
			if err = os.Mkdir(target, info.Mode().Perm()|0o700); errors.Is(err, fs.ErrExist) {
				err = nil
			}
		case fs.ModeSymlink:
			var to string
			if to, err = os.Readlink(path); err == nil {
				err = os.Symlink(to, target)
			}
		case 0:
			err = copyFile(path, target, info.Mode().Perm())
		}
		if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
			return nil
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the image has no files for this sandbox
	}
	if err != nil {
		return fmt.Errorf("fill the sandbox's directories: %w", err)
	}
	return nil
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Channel serves streams to ports inside, on standard input and output, until they end. It does not
// return.
func Channel() {
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err == nil {
		err = relay.ServeStreams(standardStreams{}, guestPorts{})
	}
	if err != nil {
		report(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// standardStreams combines standard input and output to one stream.
type standardStreams struct{}

// Read implements io.Reader.
func (standardStreams) Read(b []byte) (int, error) { return os.Stdin.Read(b) }

// Write implements io.Writer.
func (standardStreams) Write(b []byte) (int, error) { return os.Stdout.Write(b) }

// Close implements io.Closer.
func (standardStreams) Close() error { return errors.Join(os.Stdin.Close(), os.Stdout.Close()) }
