package docker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// cleanupTime bounds a cleanup, which does not end with the request.
const cleanupTime = time.Minute

// cleanupContext returns a context for the cleanup after a request whose context may have ended.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}

// Create implements engine.Engine.
func (e *Engine) Create(ctx context.Context, spec engine.Spec) error {
	if err := e.check(&spec); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return e.explain("create sandbox "+spec.ID, err)
	}
	owner, err := e.owner(true)
	if err != nil {
		return err
	}
	l := layout{owner: owner, runtime: e.o.Runtime, spec: spec, volumes: planVolumes(owner, spec)}
	trees, err := openTrees(&l)
	defer closeTrees(trees)
	if err != nil {
		return err
	}
	err = e.refusePodman(ctx)
	if err == nil {
		err = e.refuseRuntime(ctx)
	}
	var base string
	if err == nil {
		base, err = e.ensureImage(ctx, owner, *spec.Image.OCI)
	}
	if err == nil {
		l.image, err = e.withGuest(ctx, owner, base, spec.Image.Guest)
	}
	if err != nil {
		e.noteFailedCreation(spec.ID)
		return e.explain("prepare the image of sandbox "+spec.ID, err)
	}
	created, err := e.client.ContainerCreate(ctx, l.request())
	if cerrdefs.IsConflict(err) {
		return fault.Wrap(err, fault.Exists, "id_taken", fmt.Sprintf("the ID %s is in use", spec.ID))
	}
	if err == nil {
		err = e.start(ctx, created.ID, l, trees)
	}
	if err == nil {
		return nil
	}
	undoCtx, cancel := cleanupContext(ctx)
	defer cancel()
	return errors.Join(e.explain("create sandbox "+spec.ID, err), e.remove(undoCtx, owner, spec.ID))
}

// check refuses a specification that this engine cannot create, and fills in default limits.
func (e *Engine) check(spec *engine.Spec) error {
	if err := spec.Check(e.Info()); err != nil {
		return err
	}
	if !path.IsAbs(spec.Image.Guest) || path.Clean(spec.Image.Guest) != spec.Image.Guest {
		return fault.Newf(fault.Invalid, "image_invalid", "the guest's path %q is not absolute", spec.Image.Guest)
	}
	if len(spec.Links)+len(spec.StandIns) > 0 {
		return fault.New(fault.Unsupported, "links_unsupported", "the engine docker cannot add links to an image or replace files")
	}
	if len(spec.Mounts) > 0 {
		return fault.New(fault.Unsupported, "mount_unsupported", "the engine docker mounts only the workspace of the host").
			WithHint("put the files into the workspace or into an image")
	}
	// The whole image is read-only, so only paths outside it need protection.
	spec.ReadOnly = slices.DeleteFunc(slices.Clone(spec.ReadOnly), inImage)
	for _, name := range spec.ReadOnly {
		if !slices.ContainsFunc(copiedDirs(*spec), func(dir string) bool { _, ok := below(dir, name); return ok }) {
			return fault.Newf(fault.Invalid, "read_only_invalid", "the engine docker cannot make %s read-only: it protects paths in the workspace only", name)
		}
	}
	if e.userspaceKernel() && len(spec.ReadOnly)+len(spec.Hide) > 0 {
		return fault.New(fault.Unsupported, "cover_unsupported", "the runtime "+e.o.Runtime+" protects no paths of a container's volumes").
			WithHint("use the runtime runc or crun")
	}
	spec.Limits = spec.Limits.OrDefault()
	return nil
}

// inImage reports whether a path is in the read-only root and not in a directory that is mounted
// over it.
func inImage(name string) bool {
	if !path.IsAbs(name) || path.Clean(name) != name {
		return false
	}
	for _, dir := range append(writableDirs(), workspaceDir, "/proc", "/sys", "/dev") {
		if name == dir || strings.HasPrefix(name, dir+"/") || strings.HasPrefix(dir, strings.TrimSuffix(name, "/")+"/") {
			return false
		}
	}
	return true
}

// copiedDirs returns the paths in the sandbox to which files of this host are copied.
func copiedDirs(spec engine.Spec) (dirs []string) {
	for _, v := range planVolumes(strings.Repeat("0", 32), spec) {
		dirs = append(dirs, v.target)
	}
	return dirs
}

// tree is a directory of this host that is copied to target in the sandbox.
type tree struct {
	root   *os.Root
	target string
	cover  cover
}

// openTrees opens the trees to copy, and adds their protected paths to the layout.
func openTrees(l *layout) (list []tree, err error) {
	for _, v := range l.volumes {
		root, err := os.OpenRoot(v.source)
		if err != nil {
			return list, fmt.Errorf("open %s: %w", v.target, err)
		}
		list = append(list, tree{root: root, target: v.target})
		t := &list[len(list)-1]
		if t.cover, err = resolveCover(root, v.target, l.spec); err != nil {
			return list, err
		}
		for name := range t.cover.locked {
			l.protected = append(l.protected, filepath.Join(v.target, name))
		}
	}
	// A directory must be mounted before the directories below it.
	slices.Sort(l.protected)
	return list, nil
}

func closeTrees(list []tree) {
	for _, t := range list {
		_ = t.root.Close() // nothing was written
	}
}

// copyTrees copies the trees into the container, and stores the names of their files on this host:
// Archive finds by them which files the sandbox has removed.
func (e *Engine) copyTrees(ctx context.Context, container, id string, trees []tree) error {
	if len(trees) == 0 {
		return nil
	}
	names, err := e.createNames(id)
	if err != nil {
		return err
	}
	defer names.Close()
	copied := bufio.NewWriter(names)
	for _, t := range trees {
		from, to := io.Pipe()
		written := make(chan struct{})
		go func() {
			defer close(written)
			to.CloseWithError(writeTar(to, t.root, t.target, t.cover, copied))
		}()
		err := e.put(ctx, container, t.target, from)
		from.Close() // after an error, this ends writeTar
		<-written
		if err != nil {
			return fmt.Errorf("copy the files of %s: %w", t.target, err)
		}
	}
	return errors.Join(copied.Flush(), names.Close())
}

// start copies the files, starts the container and returns when its guest is ready.
func (e *Engine) start(ctx context.Context, id string, l layout, trees []tree) error {
	if err := e.copyTrees(ctx, id, l.spec.ID, trees); err != nil {
		return err
	}
	// Attach before the start, because earlier output of the guest would be lost.
	attached, err := e.client.ContainerAttach(ctx, id, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	conn := newExecConnection(attached.HijackedResponse)
	defer conn.close()
	if _, err := e.client.ContainerStart(ctx, id, client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if err := e.checkVolumes(ctx, id, l.spec.Volumes); err != nil {
		return err
	}
	if err := e.connect(ctx, id, &l.spec); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return savedFilesFault(l.spec, boot(ctx, conn, l.spec))
}

// savedFilesFault explains that saved files do not fit into a container: those of another engine
// have at least the attributes of the root, which is read-only here.
func savedFilesFault(spec engine.Spec, err error) error {
	if err == nil || spec.Boot.Files == nil || !strings.Contains(err.Error(), unix.EROFS.Error()) {
		return err
	}
	return fault.Wrap(err, fault.Unsupported, "files_unsupported", "the saved files include some of the root, which is read-only in a container").
		WithHint("start the snapshot on the engine that took it, without --engine")
}
