package microvm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/linux/rootimage"
	"github.com/crannog/crannog/internal/engine/microvm/machine"
	"github.com/crannog/crannog/internal/fault"
)

// workspaceDir is where the workspace is mounted.
const workspaceDir = "/workspace"

// source is stored next to an image's disk and names the directory of the image's files. If that no
// longer exists, the disk is removed.
type source struct{ Dir string }

// newDisks creates the disks of a new sandbox, and returns them by their serial numbers, with the
// trees on the sandbox's own disk.
func (b *instance) newDisks(ctx context.Context, spec engine.Spec) (disks map[string]string, trees []setup.Tree, err error) {
	root, view, err := b.e.rootDisk(ctx, spec.Image)
	if err != nil {
		return nil, nil, err
	}
	disks = map[string]string{machine.RootDisk: root}
	own, trees, err := b.ownDisk(ctx, spec, view)
	if own != "" {
		disks[machine.OwnDisk] = own
	}
	return disks, trees, err
}

// rootDisk returns the disk of an image. It creates one on first use if the image's store has none.
func (e *Engine) rootDisk(ctx context.Context, image engine.Image) (disk string, view engine.HostView, err error) {
	if e.o.Images == nil {
		return "", view, fault.New(fault.Unsupported, engine.CodeImage, "the engine microvm has no image store here")
	}
	if view, err = e.o.Images.ImageView(ctx, *image.OCI); err != nil {
		return "", view, err
	}
	if packed := view.Whole(); packed != nil {
		return packed.File, view, nil
	}
	key := sha256.New()
	fmt.Fprintf(key, "%s %s\n", image.OCI.Digest, view.Dir)
	for _, b := range view.Binds {
		info, err := os.Stat(b.Source)
		if err != nil {
			return "", view, err
		}
		if !info.Mode().IsRegular() {
			return "", view, fault.Newf(fault.Unsupported, engine.CodeImage, "the engine microvm cannot show a directory of the host: %s", b.Source)
		}
		fmt.Fprintf(key, "%s %s %d %d\n", b.Source, b.Target, info.Size(), info.ModTime().UnixNano())
	}
	name := hex.EncodeToString(key.Sum(nil))[:32]
	disk = filepath.Join(e.imagesDir(), name+".erofs")
	if _, err := os.Stat(disk); !errors.Is(err, fs.ErrNotExist) {
		return disk, view, err
	}
	made := e.making.DoChan(name, func() (any, error) {
		// Other callers may wait for the same disk, so the end of one request does not stop this.
		return nil, e.makeDisk(context.WithoutCancel(ctx), disk, view)
	})
	select {
	case <-ctx.Done():
		return "", view, context.Cause(ctx)
	case result := <-made:
		return disk, view, result.Err
	}
}

// makeDisk creates the disk of an image from a view of its files.
func (e *Engine) makeDisk(ctx context.Context, disk string, view engine.HostView) error {
	e.pruneDisks()
	data, err := json.Marshal(source{view.Dir})
	if err == nil {
		err = os.WriteFile(strings.TrimSuffix(disk, ".erofs")+".json", data, 0o600)
	}
	if err != nil {
		return err
	}
	return rootimage.WriteView(ctx, disk, view)
}

// pruneDisks removes the disks of images that no longer exist. A running machine has its disks
// open and keeps them.
func (e *Engine) pruneDisks() {
	list, _ := filepath.Glob(filepath.Join(e.imagesDir(), "*.json")) // fails only for an invalid pattern
	for _, name := range list {
		var s source
		data, err := os.ReadFile(name)
		if err != nil || json.Unmarshal(data, &s) != nil {
			continue
		}
		if _, err := os.Stat(s.Dir); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err = os.Remove(strings.TrimSuffix(name, ".json") + ".erofs")
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = os.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.log.Warn("the disk of a removed image cannot be removed", "path", name, "err", err)
		}
	}
}

// ownDisk creates a disk with the sandbox's workspace and mounts, and returns the trees on it.
// Without any, there is no disk.
func (b *instance) ownDisk(ctx context.Context, spec engine.Spec, view engine.HostView) (disk string, trees []setup.Tree, err error) {
	covered := map[string]bool{}
	for _, list := range [][]string{spec.Hide, spec.Absent} {
		for _, name := range list {
			covered[name] = true
		}
	}
	var copied []rootimage.Tree
	add := func(source, location, target string, isMount bool) error {
		info, err := os.Stat(source)
		if err != nil {
			return fmt.Errorf("show %s: %w", target, err)
		}
		if source, err = filepath.EvalSymlinks(source); err != nil {
			return fmt.Errorf("show %s: %w", target, err)
		}
		t := setup.Tree{Target: target, Source: path.Join(machine.OwnMount, location), Place: isMount}
		if !info.IsDir() {
			// A file is shown through its directory, because only directories can be mounted.
			t.File, t.Copy, t.Name = true, isMount, path.Base(target)
			location = path.Join(location, t.Name)
		}
		trees = append(trees, t)
		copied = append(copied, rootimage.Tree{
			Source: source, Target: "/" + location, Owner: rootimage.AllOf(engine.UserID, engine.UserID),
			// Hidden files are not copied to the disk.
			Empty: func(name string) bool { return covered[path.Join(target, name)] },
		})
		return nil
	}
	if spec.Workspace != "" {
		if err := add(spec.Workspace, "workspace", workspaceDir, false); err != nil {
			return "", nil, err
		}
	}
	for i, m := range spec.Mounts {
		if _, err := os.Lstat(filepath.Join(view.Dir, m.Target)); err == nil {
			return "", nil, fault.Newf(fault.Invalid, "mount_taken", "%s is used by the image", m.Target)
		}
		if err := add(m.Source, "mount"+strconv.Itoa(i), m.Target, true); err != nil {
			return "", nil, err
		}
	}
	if len(trees) == 0 {
		return "", nil, nil
	}
	disk = filepath.Join(b.dir, ownName)
	return disk, trees, rootimage.Write(ctx, disk, copied)
}
