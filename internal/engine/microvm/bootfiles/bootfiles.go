// Package bootfiles owns the files from which a virtual machine boots: the choice of a kernel on
// this host, and the first root, an archive with the guest's program as the first process and with
// the kernel's modules.
package bootfiles

import (
	"bufio"
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

	"golang.org/x/mod/semver"
)

// ModulesDir is the directory with the modules in the first root. OrderName is the file in it that
// lists them in the order in which they are loaded.
const (
	ModulesDir = "/modules"
	OrderName  = "order"
)

// Files holds the paths on the host of the files from which a machine boots.
type Files struct {
	Kernel, FirstRoot string
}

// ErrNoKernel is returned if no kernel is configured and the host has none.
var ErrNoKernel = errors.New("there is no kernel /boot/vmlinuz-*")

// Kernel returns the path of the kernel: the configured file; the newest one in the configured
// directory, or in its boot directory; or the newest in /boot if none is configured.
func Kernel(configured string) (string, error) {
	dir := configured
	if dir == "" {
		dir = "/boot"
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return dir, nil
	}
	if err != nil && (configured != "" || !errors.Is(err, fs.ErrNotExist)) {
		return "", err
	}
	var list []string
	for _, pattern := range []string{"vmlinuz", "vmlinuz-*", "boot/vmlinuz-*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", err
		}
		list = append(list, found...)
	}
	if len(list) == 0 && configured != "" {
		return "", fmt.Errorf("there is no kernel vmlinuz or vmlinuz-VERSION in %s", configured)
	}
	if len(list) == 0 {
		return "", ErrNoKernel
	}
	return slices.MaxFunc(list, func(a, b string) int { return semver.Compare(versionOf(a), versionOf(b)) }), nil
}

// versionOf returns the version in a kernel's name in the form in which versions are compared.
// A Debian name has a revision after the first dash of the version, which is compared as a number.
func versionOf(kernel string) string {
	_, version, _ := strings.Cut(filepath.Base(kernel), "-")
	number, rest, _ := strings.Cut(version, "-")
	revision, _, _ := strings.Cut(rest, "-")
	if revision == "" {
		revision = "0"
	}
	return "v" + number + "-" + revision
}

// Make returns the files from which a machine boots. It creates the first root in dir if it does
// not exist yet.
func Make(dir, configured, guest string) (Files, error) {
	kernel, err := Kernel(configured)
	if err != nil {
		return Files{}, err
	}
	all, err := findModules(kernel)
	if err != nil {
		return Files{}, err
	}
	paths, err := all.ordered()
	if err != nil {
		return Files{}, err
	}
	key := sha256.New()
	for _, path := range append([]string{guest}, paths...) {
		info, err := os.Stat(path)
		if err != nil {
			return Files{}, err
		}
		fmt.Fprintf(key, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
	}
	f := Files{Kernel: kernel, FirstRoot: filepath.Join(dir, "first-"+hex.EncodeToString(key.Sum(nil))[:16]+".cpio")}
	if f.Kernel, err = readableKernel(dir, kernel); err != nil {
		return Files{}, err
	}
	if _, err := os.Stat(f.FirstRoot); !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	return f, write(f.FirstRoot, func(w io.Writer) error { return firstRoot(w, guest, paths) })
}

// readableKernel returns the kernel, or a copy of it in dir if only root may read it, as on Ubuntu.
// QEMU runs as another user.
func readableKernel(dir, kernel string) (string, error) {
	info, err := os.Stat(kernel)
	if err != nil || info.Mode()&0o004 != 0 {
		return kernel, err
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", kernel, info.Size(), info.ModTime().UnixNano()))
	readable := filepath.Join(dir, "kernel-"+hex.EncodeToString(key[:])[:16])
	if _, err := os.Stat(readable); !errors.Is(err, fs.ErrNotExist) {
		return readable, err
	}
	from, err := os.Open(kernel)
	if err != nil {
		return "", err
	}
	defer from.Close()
	return readable, write(readable, func(w io.Writer) error {
		_, err := io.Copy(w, from)
		return err
	})
}

// firstRoot writes the archive.
func firstRoot(w io.Writer, guest string, paths []string) error {
	a := &archive{w: bufio.NewWriterSize(w, 1<<20)}
	for _, dir := range []string{"dev", "proc", "sys", "root", "modules"} {
		a.directory(dir)
	}
	if err := a.file("init", guest); err != nil {
		return err
	}
	var order []string
	for _, path := range paths {
		order = append(order, filepath.Base(path))
		if err := a.file("modules/"+filepath.Base(path), path); err != nil {
			return err
		}
	}
	a.text("modules/"+OrderName, strings.Join(order, "\n"))
	return a.end()
}

// write creates a file atomically. If two processes do so at once, each creates a complete one.
func write(path string, fill func(io.Writer) error) error {
	draft, err := os.CreateTemp(filepath.Dir(path), ".draft-*")
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name())
	// QEMU may run as another user. The directory above is the server's own.
	if err := errors.Join(fill(draft), draft.Chmod(0o444), draft.Close()); err != nil {
		return err
	}
	return os.Rename(draft.Name(), path)
}
