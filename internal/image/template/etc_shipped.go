package template

import (
	"bytes"
	"crypto/md5" //nolint:gosec // dpkg uses it; it detects changed files, not forged ones
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// Limits of the files that a setting may add.
const (
	maxEtcBytes = 1 << 20
	maxEtcFiles = 1000
)

// dpkgStatus is the file in which dpkg lists the installed packages.
const dpkgStatus = "/var/lib/dpkg/status"

// showShipped adds files of packages that were not changed since their installation.
func (p *plan) showShipped(root string) error {
	var found []string
	for _, s := range packageEtc {
		for _, pattern := range s.paths {
			matches, err := filepath.Glob(filepath.Join(root, "/etc", pattern))
			if err != nil {
				return err
			}
			for _, match := range matches {
				found = append(found, inside(root, match))
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	sums, err := shippedSums(root)
	if err != nil {
		return err
	}
	for _, name := range found {
		if never(name) {
			continue
		}
		err := p.copyEtc(root, name, func(data []byte) bool {
			sum := md5.Sum(data) //nolint:gosec // dpkg stores MD5 checksums
			return sums[name] == hex.EncodeToString(sum[:])
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// shippedSums returns the checksums of packages' files in /etc, from dpkg. Without dpkg there are
// none.
func shippedSums(root string) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(root, dpkgStatus))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for line := range bytes.Lines(data) {
		// A line such as " /etc/nanorc 0123…" below Conffiles. An obsolete one has a third word.
		if !bytes.HasPrefix(line, []byte(" /etc/")) {
			continue
		}
		if fields := strings.Fields(string(line)); len(fields) == 2 && len(fields[1]) == 2*md5.Size {
			sums[fields[0]] = fields[1]
		}
	}
	return sums, nil
}

// showMore adds files and directories from a setting.
func (p *plan) showMore(root string, names []string) error {
	files := 0
	for _, name := range names {
		if !strings.HasPrefix(name, "/etc/") || path.Clean(name) != name {
			return fault.Newf(fault.Invalid, "host_etc_invalid", "host_etc contains %q, which is not a clean path below /etc", name)
		}
		if never(name) {
			return fault.Newf(fault.Invalid, "host_etc_refused", "host_etc contains %s, which is never shown in a sandbox", name).
				WithHint("copy the parts that a program needs, without accounts, keys and credentials, into the workspace")
		}
		if _, err := os.Lstat(filepath.Join(root, name)); err != nil {
			return fault.Wrap(err, fault.Invalid, "host_etc_invalid", "host_etc names "+name+", which does not exist or is not readable")
		}
		err := filepath.WalkDir(filepath.Join(root, name), func(match string, d fs.DirEntry, err error) error {
			at := inside(root, match)
			switch {
			case errors.Is(err, fs.ErrPermission):
				return nil
			case err != nil:
				return err
			case never(at) && d.IsDir():
				return fs.SkipDir
			case never(at) || d.IsDir():
				return nil
			}
			if files++; files > maxEtcFiles {
				return fault.Newf(fault.Invalid, "host_etc_invalid", "host_etc contains more than %d files", maxEtcFiles)
			}
			return p.copyEtc(root, at, func(data []byte) bool { return !bytes.Contains(data, []byte("PRIVATE KEY-----")) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// copyEtc adds one file that every user of the host may read and whose content is accepted, or a
// link whose target is visible in the sandbox. The template's own files are not replaced.
func (p *plan) copyEtc(root, name string, accept func([]byte) bool) error {
	if _, isOwn := p.files[name]; isOwn {
		return nil
	}
	if _, isOwn := p.links[name]; isOwn {
		return nil
	}
	full := filepath.Join(root, name)
	info, err := os.Lstat(full)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		to, err := os.Readlink(full)
		if err != nil {
			return err
		}
		p.parents(name)
		p.links[name] = to
		return nil
	}
	if !info.Mode().IsRegular() || info.Mode()&0o004 == 0 || info.Size() > maxEtcBytes {
		return nil
	}
	data, err := os.ReadFile(full)
	if errors.Is(err, fs.ErrPermission) {
		return nil // this user may not enter a directory above
	}
	if err != nil {
		return err
	}
	if accept(data) {
		p.add(name, data, 0o644|info.Mode()&0o111)
	}
	return nil
}

// never reports whether a path below /etc, or a directory on the way to it, has one of neverNames.
func never(name string) bool {
	for part := range strings.SplitSeq(strings.TrimPrefix(name, "/etc/"), "/") {
		for _, pattern := range neverNames {
			if matched, _ := path.Match(pattern, strings.ToLower(part)); matched {
				return true
			}
			if matched, _ := path.Match(pattern, part); matched {
				return true
			}
		}
	}
	return false
}

// inside returns the path in the sandbox of a host path.
func inside(root, match string) string {
	return "/" + strings.TrimPrefix(strings.TrimPrefix(match, root), "/")
}
