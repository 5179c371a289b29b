package root

import (
	"fmt"
	"path"
	"strings"

	"github.com/crannog/crannog/internal/filetree/hosttools"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// GuestTarget is the path of the guest's program in the sandbox.
const GuestTarget = "/.crannog/crannog-guest"

// furnishVersion is the version of the files that furnish adds. Images with a tree of another
// version are unpacked again. The old tree stays for the sandboxes that started from it.
const furnishVersion = 2

// mountPoints are the mount points in each sandbox. Links of the image at these paths are removed,
// because they would decide where the mount is.
var mountPoints = []string{
	layer.Reserved, strings.TrimPrefix(rootfs.ProgramsDir, "/"), strings.TrimPrefix(rootfs.ToolsDir, "/"), ".crannog/bin",
	strings.TrimPrefix(sandbox.WorkspaceDir, "/"), "dev", "proc", "sys",
}

// standardDirs are directories that programs and the guest expect, with their modes. Existing
// directories of the image are not changed.
var standardDirs = []struct {
	name string
	mode uint32
}{
	{"etc", 0o755}, {"home", 0o755}, {"root", 0o700}, {"run", 0o755}, {"tmp", 0o1777}, {"var", 0o755}, {"var/tmp", 0o1777},
	// gVisor mounts a tmpfs on an empty /tmp, to which the disk limit would not apply.
	{"tmp/.X11-unix", 0o1777}, {"home/user", 0o755},
}

// furnish adds the files that a sandbox needs in its root to an unpacked image.
func furnish(t *layer.Tree, workingDir string) error {
	if err := addMountPoints(t, workingDir); err != nil {
		return err
	}
	if err := t.Own("home/user", sandboxUser, sandboxUser); err != nil {
		return err
	}
	return addAccounts(t)
}

// addMountPoints creates the mount points of a sandbox.
func addMountPoints(t *layer.Tree, workingDir string) error {
	for _, dir := range mountPoints {
		if err := t.MakeOwn(dir, 0o755); err != nil {
			return fmt.Errorf("/%s: %w", dir, err)
		}
	}
	for _, dir := range standardDirs {
		if err := t.MakeStandardDirs(dir.name, dir.mode); err != nil {
			return fmt.Errorf("/%s: %w", dir.name, err)
		}
	}
	if dir := strings.TrimPrefix(path.Clean("/"+workingDir), "/"); dir != "" {
		// An image may name a working directory that does not exist. If a file is at that path, the
		// first command reports it.
		_ = t.MakeStandardDirs(dir, 0o755)
	}
	files := map[string]string{strings.TrimPrefix(GuestTarget, "/"): ""}
	for n := range rootfs.MaxPrograms {
		if err := t.MakeOwn(strings.TrimPrefix(rootfs.ProgramPath(n+1, true), "/"), 0o755); err != nil {
			return err
		}
		files[strings.TrimPrefix(rootfs.ProgramPath(n+1, false), "/")] = ""
	}
	for n := range hosttools.MaxTrees {
		if err := t.MakeOwn(strings.TrimPrefix(rootfs.ToolPath(n+1), "/"), 0o755); err != nil {
			return err
		}
	}
	for name, data := range files {
		if err := t.WriteFile(name, []byte(data), 0o555); err != nil {
			return err
		}
	}
	return nil
}
