package template

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/filetree/hosttools"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// plan is the planned content of a root directory.
type plan struct {
	dirs  map[string]fs.FileMode
	files map[string]file
	links map[string]string
	binds []engine.Bind
}

// file is a planned file.
type file struct {
	data []byte
	mode fs.FileMode
}

// systemDirs are the host's program directories. On a host with a merged /usr all but the first are
// links, which stay links.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/libo32"}

// ownDirs exist in every root. A directory that is neither here nor shown from the host does not
// exist: the host's /root, /home, /mnt, /media, /opt, /srv, /boot, /sys and everything below the
// host's /var and /run.
var ownDirs = map[string]fs.FileMode{
	"/.crannog": 0o755, rootfs.ProgramsDir: 0o755, rootfs.ToolsDir: 0o755, "/dev": 0o755, "/etc": 0o755, "/etc/uv": 0o755, "/home": 0o755, "/home/user": 0o755,
	"/proc": 0o555, "/root": 0o700, "/run": 0o755, "/run/lock": 0o755, "/tmp": 0o777 | fs.ModeSticky,
	// gVisor mounts a tmpfs on an empty /tmp, to which the disk limit would not apply. This
	// directory, which every Linux system has there, keeps /tmp in the overlay.
	"/tmp/.X11-unix": 0o777 | fs.ModeSticky,
	"/var":           0o755, "/var/cache": 0o755, "/var/lib": 0o755, "/var/log": 0o755,
	"/var/tmp": 0o777 | fs.ModeSticky, "/workspace": 0o755,
}

// etcDirs are shown from the host if they exist. They contain no secrets, and programs in /usr do
// not work without them. /etc/ssl itself is not listed, because /etc/ssl/private contains keys.
var etcDirs = []string{
	"/etc/alternatives", "/etc/ssl/certs", "/etc/fonts", "/etc/ld.so.conf.d",
	"/etc/perl", "/etc/python3", "/etc/python3.*", "/etc/java-*-openjdk", "/etc/terminfo",
	"/etc/R", "/etc/php", "/etc/lua*", "/etc/maven", "/etc/pki/ca-trust/extracted", "/etc/pki/tls/certs",
	"/etc/bash_completion.d", "/etc/groff", "/etc/ImageMagick-6", "/etc/ghostscript",
}

// etcFiles are copied from the host if they exist.
var etcFiles = []string{
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ssl/openssl.cnf", "/etc/mime.types",
	"/etc/protocols", "/etc/services", "/etc/rpc", "/etc/ethertypes", "/etc/inputrc", "/etc/magic",
	"/etc/os-release", "/etc/debian_version", "/etc/lsb-release", "/etc/locale.alias",
	"/etc/ca-certificates.conf", "/etc/shells", "/etc/matplotlibrc", "/etc/papersize",
}

// planHost inspects the host below root, which is "/" except in tests. more lists additional paths
// of /etc to show.
func planHost(root string, more ...string) (*plan, error) {
	p := &plan{dirs: maps.Clone(ownDirs), files: maps.Clone(ownFiles), links: maps.Clone(ownLinks)}
	for n := range rootfs.MaxPrograms {
		p.dirs[rootfs.ProgramPath(n+1, true)] = 0o755
		p.files[rootfs.ProgramPath(n+1, false)] = file{mode: 0o444}
	}
	for n := range hosttools.MaxTrees {
		p.dirs[rootfs.ToolPath(n+1)] = 0o755
	}
	for _, dir := range systemDirs {
		if err := p.showSystem(root, dir); err != nil {
			return nil, err
		}
	}
	if len(p.binds) == 0 {
		return nil, fmt.Errorf("no /usr on this host")
	}
	for _, pattern := range etcDirs {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, match := range matches {
			if info, err := os.Stat(match); err == nil && info.IsDir() {
				p.bind(match, inside(root, match))
			}
		}
	}
	for _, name := range etcFiles {
		data, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p.add(name, data, 0o644)
	}
	if err := p.showShipped(root); err != nil {
		return nil, err
	}
	if err := p.showMore(root, more); err != nil {
		return nil, err
	}
	p.linkBareNames(root)
	p.add(guest.NpmConfig, npmConfig(root), 0o644)
	return p, nil
}

// bareNames are programs that callers call without the version number that some systems give them:
// Debian has python3 and no python, and programs for E2B call both.
var bareNames = map[string]string{"python": "python3"}

// linkBareNames links bareNames to the numbered programs if the host has only those.
func (p *plan) linkBareNames(root string) {
	p.dirs[guest.OwnPrograms] = 0o755
	find := func(name string) string {
		for _, dir := range filepath.SplitList(guest.DefaultPath) {
			path := filepath.Join(dir, name)
			if info, err := os.Stat(filepath.Join(root, path)); err == nil && info.Mode()&0o111 != 0 && !info.IsDir() {
				return path
			}
		}
		return ""
	}
	for bare, numbered := range bareNames {
		if target := find(numbered); target != "" && find(bare) == "" {
			p.links[filepath.Join(guest.OwnPrograms, bare)] = target
		}
	}
}

// showSystem shows one of the program directories, or copies the host's link.
func (p *plan) showSystem(root, dir string) error {
	path := filepath.Join(root, dir)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		p.links[dir] = target
		return nil
	}
	p.bind(path, dir)
	return nil
}

// bind shows a file or directory of the host.
func (p *plan) bind(source, target string) {
	p.parents(target)
	p.dirs[target] = 0o755
	p.binds = append(p.binds, engine.Bind{Source: source, Target: target})
}

// add adds a file with its parent directories.
func (p *plan) add(name string, data []byte, mode fs.FileMode) {
	p.parents(name)
	p.files[name] = file{data: data, mode: mode}
}

// parents adds the parent directories of a path.
func (p *plan) parents(name string) {
	for dir := filepath.Dir(name); dir != "/"; dir = filepath.Dir(dir) {
		if _, ok := p.dirs[dir]; !ok {
			p.dirs[dir] = 0o755
		}
	}
}

// digest returns the digest of the plan's content.
func (p *plan) digest() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.dirs)) {
		fmt.Fprintf(&b, "d %q %o\n", name, p.dirs[name])
	}
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		fmt.Fprintf(&b, "f %q %o %s\n", name, p.files[name].mode, shortDigest(p.files[name].data))
	}
	for _, name := range slices.Sorted(maps.Keys(p.links)) {
		fmt.Fprintf(&b, "l %q %q\n", name, p.links[name])
	}
	return shortDigest([]byte(b.String()))
}

// write creates the directory. The tree is new and only this process writes to it, so no path can
// lead out of it.
func (p *plan) write(dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(p.dirs)) {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(path, p.dirs[name]); err != nil {
			return err
		}
	}
	for name, f := range p.files {
		if err := os.WriteFile(filepath.Join(dir, name), f.data, f.mode); err != nil {
			return err
		}
	}
	for name, target := range p.links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
