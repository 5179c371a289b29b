package template

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Changes of the host's programs are detected by dpkg's list of installed packages, and by the
// directories of programs and libraries. A package manager replaces files by renaming, which
// changes these directories.
var (
	packageFiles = []string{
		"/var/lib/dpkg/status", "/lib/apk/db/installed", "/var/lib/rpm/rpmdb.sqlite", "/var/lib/rpm/Packages", "/etc/ld.so.cache",
	}
	programDirs = []string{
		"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/lib/*-linux-gnu", "/usr/lib/*-linux-musl",
		"/usr/lib/python3/dist-packages", "/usr/lib/python3.*/site-packages", "/usr/lib/node_modules", "/var/lib/pacman/local",
		"/usr/local/bin", "/usr/local/sbin", "/usr/local/lib", "/usr/local/lib64", "/usr/local/lib/node_modules",
		"/usr/local/lib/python3.*/dist-packages", "/usr/local/lib/python3.*/site-packages",
	}
)

// ownProgram is the name prefix of programs that may change without affecting the programs in a
// sandbox, so that an upgrade of crannog preserves its snapshots.
const ownProgram = "crannog"

// revision tracks the host's programs below a root. It reads only what has changed since the last
// call, or since the last call of an earlier process.
type revision struct {
	root string
	dir  string // has the checksums of earlier processes, or ""
	self string // the guest's program if it is this program, or ""

	mu      sync.Mutex
	cache   map[string]cachedSum // by path
	changed bool                 // cache has more than the file
	// dirs are the matches of programDirs when the directories of the patterns had the identities
	// in within.
	dirs   []string
	within [5]identity
}

// cachedSum is the checksum of a file or directory with a certain identity.
type cachedSum struct {
	id  identity
	sum string
}

// identity changes with every change of a file, or of a directory's names.
type identity struct {
	dev, ino  uint64
	size, sec int64
	nsec      int64
}

// digest returns a digest of the state of all programs.
func (v *revision) digest() (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cache == nil {
		v.load()
	}
	var all []byte
	add := func(path string, read func(string) (string, error)) error {
		sum, err := v.sumOf(path, read)
		if err == nil && sum != "" {
			all = append(append(append(append(all, path...), 0), sum...), '\n')
		}
		return err
	}
	for _, name := range packageFiles {
		if err := add(filepath.Join(v.root, name), readSum); err != nil {
			return "", err
		}
	}
	if err := v.match(); err != nil {
		return "", err
	}
	for _, dir := range v.dirs {
		if err := add(dir, listSum); err != nil {
			return "", err
		}
	}
	if v.self != "" {
		if err := add(v.self, func(path string) (string, error) { id, err := identify(path); return id.String(), err }); err != nil {
			return "", err
		}
	}
	if v.changed {
		v.save(time.Now())
	}
	return shortDigest(all), nil
}

// match finds the directories of programs, if they may have changed since the last call.
func (v *revision) match() error {
	var within [5]identity
	for i, dir := range []string{"/usr", "/usr/lib", "/usr/local", "/usr/local/lib", "/var/lib"} {
		id, err := identify(filepath.Join(v.root, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		within[i] = id
	}
	if v.dirs != nil && within == v.within {
		return nil
	}
	var dirs []string
	for _, pattern := range programDirs {
		matches, err := filepath.Glob(filepath.Join(v.root, pattern))
		if err != nil {
			return err
		}
		dirs = append(dirs, matches...)
	}
	v.dirs, v.within = dirs, within
	return nil
}

// sumOf returns the checksum of a path, from the cache if the path is unchanged. A missing path
// gives "".
func (v *revision) sumOf(path string, read func(string) (string, error)) (string, error) {
	id, err := identify(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if g := v.cache[path]; g.id == id {
		return g.sum, nil
	}
	sum, err := read(path)
	if errors.Is(err, fs.ErrPermission) {
		sum, err = id.String(), nil // the content is not readable for this user
	}
	if err != nil {
		return "", err
	}
	v.cache[path], v.changed = cachedSum{id, sum}, true
	return sum, nil
}

// identify returns the present identity of a file.
func identify(path string) (identity, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return identity{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return identity{st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec}, nil
}

func (i identity) String() string {
	return fmt.Sprintf("%d:%d:%d:%d.%09d", i.dev, i.ino, i.size, i.sec, i.nsec)
}

// readSum returns the checksum of a file's content.
func readSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// listSum returns a checksum of a directory: of each entry and its change time. For subdirectories
// only the names count.
func listSum(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	lines := make([]string, 0, len(entries))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ownProgram) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // the file was removed, so the directory has changed again
		}
		if err != nil {
			return "", err
		}
		line := fmt.Sprintf("%q %v", e.Name(), info.Mode())
		if !info.IsDir() {
			line += fmt.Sprintf(" %d %d", info.Size(), info.ModTime().UnixNano())
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return shortDigest([]byte(strings.Join(lines, "\n"))), nil
}
