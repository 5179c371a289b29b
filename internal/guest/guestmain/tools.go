package guestmain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/identity"
)

// showTools makes the programs of the host's version managers available at the host's paths. No
// program has run yet, so no link can redirect these writes.
func showTools(root string, t guest.Tools, user identity.User) error {
	for _, l := range t.Links {
		if !filepath.IsAbs(l.At) || filepath.Clean(l.At) != l.At {
			return fmt.Errorf("link %q: not a clean absolute path", l.At)
		}
		if err := makeTraversable(root, filepath.Dir(l.At), user); err != nil {
			return err
		}
		if err := os.Symlink(l.To, filepath.Join(root, l.At)); err != nil {
			return fmt.Errorf("show %s: %w", l.At, err)
		}
	}
	for _, f := range t.Files {
		if !filepath.IsLocal(f.Path) {
			return fmt.Errorf("file %q: not below the home", f.Path)
		}
		name := filepath.Join(root, user.Home, f.Path)
		if err := os.WriteFile(name, f.Data, permission(f)); err != nil {
			return err
		}
		if err := os.Chown(name, int(user.UID), int(user.GID)); err != nil {
			return err
		}
	}
	return nil
}

// makeTraversable creates a directory and its missing parents, and allows all users to traverse
// them, because the home of the host's user may be /root. In the user's home, new directories
// belong to the user.
func makeTraversable(root, dir string, user identity.User) error {
	if dir == "/" {
		return nil
	}
	if err := makeTraversable(root, filepath.Dir(dir), user); err != nil {
		return err
	}
	name := filepath.Join(root, dir)
	err := os.Mkdir(name, 0o755)
	switch {
	case errors.Is(err, fs.ErrExist):
		info, err := os.Stat(name)
		if err != nil || info.Mode()&0o011 == 0o011 {
			return err
		}
		return os.Chmod(name, info.Mode().Perm()|0o011)
	case err != nil:
		return err
	case strings.HasPrefix(dir, user.Home+"/"):
		return os.Chown(name, int(user.UID), int(user.GID))
	}
	return nil
}
