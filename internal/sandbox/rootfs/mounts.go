package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// maxTarget limits the length of a path inside.
const maxTarget = 1024

// reservedPaths are paths at and below which nothing can be mounted: the workspace, and paths that
// the kernel, the guest or its programs use.
var reservedPaths = []string{sandbox.WorkspaceDir, "/proc", "/sys", "/dev", "/.crannog", "/etc", "/run"}

// ResolveMounts checks the mounts of a request. It follows links only once, here, under the
// caller's own permissions.
func ResolveMounts(s sandbox.Settings, list []sandbox.Mount) (_ []sandbox.Mount, err error) {
	if len(list) > sandbox.MaxMounts {
		return nil, fault.Newf(fault.Invalid, "mounts_invalid", "a sandbox can have at most %d mounts", sandbox.MaxMounts)
	}
	var out []sandbox.Mount
	for _, m := range list {
		if m.Name != "" {
			if m, err = sharedMount(s, m); err != nil {
				return nil, err
			}
		}
		if !filepath.IsAbs(m.Source) {
			return nil, fault.Newf(fault.Invalid, "mounts_invalid", "the source of a mount must be an absolute path, but is %.200q", m.Source)
		}
		if m.Target == "" {
			m.Target = filepath.Clean(m.Source)
		}
		real, err := filepath.EvalSymlinks(m.Source)
		if err != nil {
			return nil, fault.Wrap(err, fault.Invalid, "mounts_invalid", "the source of a mount does not exist or is not accessible")
		}
		info, err := os.Stat(real)
		if err != nil {
			return nil, fault.Wrap(err, fault.Invalid, "mounts_invalid", "the source of a mount is not accessible")
		}
		// A pipe, a device or a socket would give the sandbox a connection to the host.
		if real == "/" || !info.IsDir() && !info.Mode().IsRegular() {
			return nil, fault.Newf(fault.Invalid, "mounts_invalid", "the source of a mount must be a file or a directory other than the root, but is %.200q", m.Source)
		}
		m.Source = real
		out = append(out, m)
	}
	return out, nil
}

// AddMounts adds the mounts of a request to an instance.
func AddMounts(b *sandbox.Base, list []sandbox.Mount, image engine.Image, match policy.Matcher) error {
	for _, m := range list {
		if match.Denied(m.Source) || match.Denied(m.Source+anyFile) || match.Denied(m.Target) || match.Denied(m.Target+anyFile) {
			return fault.Newf(fault.Denied, "policy_denies_mount", "the policy hides %.200q", m.Source).
				WithHint("crannog policy explain shows the rule; another --level or --policy may allow the path")
		}
		if err := checkTarget(b, image, m.Target); err != nil {
			return err
		}
		b.Mounts = append(b.Mounts, m)
	}
	return nil
}

// AddVolumes adds the volumes of a request to an instance. A policy that makes all files read-only
// does so for volumes too.
func AddVolumes(b *sandbox.Base, list []sandbox.VolumeMount, image engine.Image, p *policy.Policy) error {
	match := p.Files().Matcher()
	for _, m := range list {
		if match.Denied(m.Target) || match.Denied(m.Target+anyFile) {
			return fault.Newf(fault.Denied, "policy_denies_mount", "the policy hides %.200q", m.Target).
				WithHint("crannog policy explain shows the rule; another --level or --policy may allow the path")
		}
		if err := checkTarget(b, image, m.Target); err != nil {
			return err
		}
		if whole, _ := onList(p.Files().Write, m.Target); !p.Files().Writable && !whole {
			m.ReadOnly = true
		}
		b.Volumes = append(b.Volumes, m)
	}
	return nil
}

// checkTarget rejects a path inside at which a mount or a link is not possible.
func checkTarget(b *sandbox.Base, image engine.Image, target string) error {
	refuse := func(why string) error {
		return fault.Newf(fault.Invalid, "mount_target_invalid", "%.200q cannot be a mount point: %s", target, why).
			WithHint("choose another path, such as --mount SRC:/mnt/data")
	}
	if !path.IsAbs(target) || path.Clean(target) != target || target == "/" || len(target) > maxTarget || strings.ContainsRune(target, 0) {
		return refuse("a mount point is an absolute path without . and .., and not / itself")
	}
	for _, t := range reservedPaths {
		if sandbox.Overlap(target, t) {
			return refuse(t + " is not for mounts")
		}
	}
	for _, bind := range image.View().Binds {
		if sandbox.Overlap(target, bind.Target) {
			return refuse("the template has " + bind.Target)
		}
	}
	for _, m := range b.Mounts {
		if sandbox.Overlap(target, m.Target) {
			return refuse("another mount is at " + m.Target)
		}
	}
	for _, m := range b.Volumes {
		if sandbox.Overlap(target, m.Target) {
			return refuse("a volume is at " + m.Target)
		}
	}
	for _, l := range b.Links {
		if sandbox.Overlap(target, l.Path) {
			return refuse("a link is at " + l.Path)
		}
	}
	dir := image.View().Dir
	if dir == "" {
		return nil
	}
	for end := 1; end <= len(target); end++ {
		if end < len(target) && target[end] != '/' {
			continue
		}
		info, err := os.Lstat(filepath.Join(dir, target[:end]))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case end == len(target) || !info.IsDir():
			return refuse("the template has " + target[:end])
		}
	}
	return nil
}

// maskMounts finds the files below mounts that a policy hides or makes read-only.
func (c *Masks) maskMounts(b sandbox.Base, p *policy.Policy) error {
	files := p.Files()
	for _, m := range b.Mounts {
		if sandbox.HiddenBelow(c.absent)(m.Target) != "" {
			continue // a repository whose history has a hidden file
		}
		git := b.Git != nil && m.Target == b.Git.Target
		if whole, _ := onList(files.Write, m.Target); m.ReadOnly || !files.Writable || !git && hasWriteList(files) && !whole {
			c.readOnly = append(c.readOnly, m.Target)
		}
		info, err := os.Stat(m.Source)
		if err != nil {
			return fault.Wrap(err, fault.Invalid, "mounts_invalid", "the source of a mount is not accessible")
		}
		if !info.IsDir() {
			if files.Workspace == workspaceCopy {
				return fault.Newf(fault.Unsupported, "mount_file_copied", "the policy requires copies, and only directories can be copied, but %.200q is a file", m.Source).
					WithHint("mount its directory, or use --level standard")
			}
			continue
		}
		w := c.walk(m.Source, m.Target, files)
		visit := w.check
		if git {
			visit = w.onlyGit(b.Git, visit)
		}
		if err := w.walkDir(m.Source, m.Target, visit); err != nil {
			return err
		}
		if err := w.findTracked(files, nil); err != nil {
			return err
		}
	}
	return nil
}

// sharedMount returns the mount of a directory that the server's settings share.
func sharedMount(s sandbox.Settings, m sandbox.Mount) (sandbox.Mount, error) {
	shared, ok := s.Mounts[m.Name]
	switch {
	case m.Source != "":
		return m, fault.New(fault.Invalid, "mounts_invalid", "a mount has a source or a name, not both")
	case !ok:
		return m, fault.Newf(fault.NotFound, "mount_unknown", "this server does not share a directory named %.100q", m.Name).
			WithHint("the setting mounts (CRANNOG_MOUNTS) of the server lists shared directories: NAME=/PATH[:ro|:cow]")
	case m.Target == "":
		return m, fault.New(fault.Invalid, "mounts_invalid", "a mount by name needs a path inside")
	}
	m.Source, m.ReadOnly = shared.Source, m.ReadOnly || shared.ReadOnly
	return m, nil
}
