package jail

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/fault"
)

// workspaceDir is where the workspace is mounted.
const workspaceDir = "/workspace"

// tree is a file or a directory of the host that is shown in a sandbox.
type tree struct {
	setup.Tree
	source string
	owned  bool // all of it belongs to the sandbox's user
}

// treesOf lists the trees of a specification in the order in which they are mounted.
func treesOf(spec engine.Spec) (list []tree, err error) {
	view := spec.Image.View()
	list = append(list, tree{Tree: setup.Tree{Target: "/"}, source: view.Dir})
	for _, b := range view.Binds {
		list = append(list, tree{Tree: setup.Tree{Target: b.Target}, source: b.Source, owned: b.Owned})
	}
	if spec.Workspace != "" {
		list = append(list, tree{Tree: setup.Tree{Target: workspaceDir}, source: spec.Workspace, owned: true})
	}
	for _, m := range spec.Mounts {
		if taken(view, m.Target) {
			return nil, fault.Newf(fault.Invalid, "mount_taken", "%s is used by the template", m.Target)
		}
		list = append(list, tree{Tree: setup.Tree{Target: m.Target, Place: true, Copy: true}, source: m.Source, owned: true})
	}
	for _, v := range spec.Volumes {
		if taken(view, v.Target) {
			return nil, fault.Newf(fault.Invalid, "mount_taken", "%s is used by the template", v.Target)
		}
		list = append(list, tree{Tree: setup.Tree{Target: v.Target, Place: true, Volume: true, ReadOnly: v.ReadOnly}, source: v.Source})
	}
	for i := range list {
		info, err := os.Stat(list[i].source)
		if err != nil {
			return nil, fmt.Errorf("show %s: %w", list[i].source, err)
		}
		if list[i].File = !info.IsDir(); list[i].File {
			list[i].Name = filepath.Base(list[i].source)
			list[i].source = filepath.Dir(list[i].source)
		}
		list[i].Copy = list[i].Copy && list[i].File
	}
	return withMounts(list)
}

// taken reports whether the image has a path, so that nothing else can be mounted there.
func taken(view engine.HostView, target string) bool {
	for _, b := range view.Binds {
		if target == b.Target || strings.HasPrefix(target, b.Target+"/") || strings.HasPrefix(b.Target, target+"/") {
			return true
		}
	}
	_, err := os.Lstat(filepath.Join(view.Dir, target))
	return err == nil
}

// withMounts adds the file systems that are mounted below a directory, because an overlay does not
// include them.
func withMounts(list []tree) ([]tree, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, fields[4])
		}
	}
	slices.Sort(points)
	var out []tree
	for _, t := range list {
		out = append(out, t)
		real, err := filepath.EvalSymlinks(t.source)
		if err != nil || t.File || t.Volume || real == "/" {
			continue
		}
		for _, point := range slices.Compact(slices.Clone(points)) {
			below, found := strings.CutPrefix(point, real+"/")
			info, err := os.Stat(point)
			if !found || err != nil {
				continue
			}
			out = append(out, tree{
				Tree: setup.Tree{Target: filepath.Join(t.Target, below), File: !info.IsDir()}, source: point, owned: t.owned,
			})
		}
	}
	return out, nil
}

// openTrees opens the trees if the engine runs as root, with the owners that they have in the
// sandbox. Without root, the sandbox's first process opens them.
func (e *Engine) openTrees(list []tree, pid int, base int) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			closeFiles(files)
		}
	}()
	users, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return nil, err
	}
	defer users.Close()
	owners := map[[2]int]*os.File{}
	defer func() {
		for _, f := range owners {
			f.Close()
		}
	}()
	for _, t := range list {
		fd, err := unix.OpenTree(unix.AT_FDCWD, t.source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return files, fmt.Errorf("show %s: %w", t.source, err)
		}
		file := os.NewFile(uintptr(fd), t.source)
		files = append(files, file)
		mapped := users
		if t.owned {
			if mapped, err = ownersOf(filepath.Join(t.source, t.Name), base, owners); err != nil {
				return files, fmt.Errorf("owners of %s: %w", t.source, err)
			}
		}
		err = mapOwners(file, mapped)
		if err != nil && t.Volume {
			// Its files would belong to no user of the sandbox.
			return files, fault.Wrap(err, fault.Unsupported, engine.CodeVolumes, "the file system of a volume cannot map owners, which the engine "+e.name()+" needs").
				WithHint("keep the state directory on ext4, xfs or btrfs, or choose another engine; crannog engines lists them")
		}
		if err != nil {
			// On a file system without support for this, files appear to belong to another user.
			// That gives no program more rights.
			e.log.Debug("owners of files cannot be mapped", "path", t.source, "err", err)
		}
	}
	return files, nil
}

// mapOwners maps the IDs on the file system to those of a user namespace.
func mapOwners(tree, users *os.File) error {
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())}
	return unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH, attr)
}

// ownersOf returns a user namespace in which the owner of a tree is the sandbox's user. Such a map
// is one-to-one: files of root still belong to root, and files of all others to the overflow user.
func ownersOf(path string, base int, known map[[2]int]*os.File) (*os.File, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	key := [2]int{int(stat.Uid), int(stat.Gid)}
	if known[key] == nil {
		f, err := userNamespace(mapsOf(key[0], base), mapsOf(key[1], base))
		if err != nil {
			return nil, err
		}
		known[key] = f
	}
	return known[key], nil
}

// mapsOf returns the maps in which owner is the sandbox's user.
func mapsOf(owner, base int) []syscall.SysProcIDMap {
	list := []syscall.SysProcIDMap{{ContainerID: owner, HostID: base + engine.UserID, Size: 1}}
	if owner != 0 {
		list = append(list, syscall.SysProcIDMap{ContainerID: 0, HostID: base, Size: 1})
	}
	return list
}

// userNamespace creates a user namespace that exists as long as the returned file is open. Only a
// new process can create it. That process is stopped before its first instruction, and killed.
func userNamespace(uids, gids []syscall.SysProcIDMap) (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	done := make(chan result, 1)
	go func() {
		// ptrace belongs to the thread that called it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.Command("/proc/self/exe") //nolint:noctx // it is stopped at its start and killed, so it never runs
		cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Cloneflags: syscall.CLONE_NEWUSER, UidMappings: uids, GidMappings: gids}
		if err := cmd.Start(); err != nil {
			done <- result{err: err}
			return
		}
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		done <- result{file, err}
	}()
	r := <-done
	return r.file, r.err
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written to it
	}
}
