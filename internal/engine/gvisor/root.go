package gvisor

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
)

// imageKinds lists the kinds of images from which assembleRoot builds a root.
var imageKinds = []engine.ImageKind{engine.ImageHostView}

// assembleRoot mounts the sandbox's root in this process's own mount namespace: the template's
// directory, the host directories shown in it, and the workspace. The mounts disappear with the
// last process of the sandbox. They are never visible to the host, so a crash leaves no mount
// behind.
func (r *bootRequest) assembleRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if r.Packed != "" {
		return r.shadowMeminfo()
	}
	root := r.OCI.Root.Path
	if err := r.showRoot(root); err != nil {
		return err
	}
	binds := r.Root.Binds
	if r.Workspace != "" {
		binds = append(binds[:len(binds):len(binds)], engine.Bind{Source: r.Workspace, Target: workspaceDir})
	}
	binds = append(binds[:len(binds):len(binds)], r.Mounts...)
	for _, b := range binds {
		target, err := cleanTarget(root, b.Target)
		if err != nil {
			return err
		}
		if err := bindReadOnly(b.Source, target); err != nil {
			return err
		}
	}
	if err := r.showStandIns(root); err != nil {
		return err
	}
	return r.shadowMeminfo()
}

// bindReadOnly mounts source read-only at target. The mount includes file systems that are mounted
// below source: in a user namespace, the kernel refuses to reveal the files that those hide.
func bindReadOnly(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("show %s: %w", source, err)
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, attr); err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
	}
	return nil
}

// shadowMeminfo makes gVisor believe that the machine has as much memory as the sandbox may use, so
// that programs in the sandbox choose their size by the limit. gVisor reads the total from
// /proc/meminfo in this process.
func (r *bootRequest) shadowMeminfo() error {
	path := filepath.Join(r.SandboxDir, "meminfo")
	text := fmt.Sprintf("MemTotal:       %d kB\n", r.Limits.MemoryBytes/1024)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	if err := unix.Mount(path, "/proc/meminfo", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("memory size: %w", err)
	}
	return nil
}
