// Package owners owns the translation of file owners in a sandbox. It runs in gVisor's kernel
// process and shows files below some directories as files of the sandbox's user, regardless of
// their owner on the host. Files of an image have the owners that its layers name.
package owners

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"github.com/crannog/crannog/internal/filetree/fileowners"
)

// The files of a workspace belong to a user of the host, whose ID means nothing in the sandbox.
// Without a translation, the sandbox's user could only work on them with capabilities that bypass
// all file permissions. An id-mapped mount of the host would translate too, but needs root, and
// does not work on every file system. The translation is therefore made where the sandbox's kernel
// reads attributes of host files, below the overlay that holds the programs' writes. Permissions
// are checked with the translated IDs.

// Annotation is the key of the annotation that holds a Plan in a specification.
const Annotation = "dev.crannog.owners"

// Plan lists the files that belong to the user. The zero Plan changes nothing.
type Plan struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
	// Places lists directories and files of the host by their paths in the sandbox. They and all
	// files below them belong to the user. No program may look them up before Install.
	Places []string `json:"places,omitempty"`
	// Files has the owners and set-id bits of other files, by their paths in the sandbox. No
	// program may look them up before Install either.
	Files fileowners.Table `json:"files,omitempty"`
	// Covers lists covers over paths below the places, in the order in which they are mounted.
	Covers []Cover `json:"covers,omitempty"`
}

// Cover is a mount that prevents programs from changing a path or from seeing its content. gVisor's
// own mounts of host directories cannot be used, because they are not below the overlay and would
// show the host's IDs.
type Cover struct {
	Path string `json:"path"`
	// Blank covers a directory with an empty one. Otherwise the content stays visible and cannot be
	// changed.
	Blank bool `json:"blank,omitempty"`
}

// Owns reports whether a path is one of the places or below one.
func (p Plan) Owns(path string) bool {
	for _, place := range p.Places {
		if path == place || strings.HasPrefix(path, place+"/") {
			return true
		}
	}
	return false
}

// Parse reads a plan from the text of an annotation. Empty text is the zero Plan.
func Parse(text string) (Plan, error) {
	var p Plan
	if text == "" {
		return p, nil
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, fmt.Errorf("owners of files: %w", err)
	}
	return p, nil
}

// Text returns the annotation for Parse.
func (p Plan) Text() (string, error) {
	data, err := json.Marshal(p)
	return string(data), err
}

// Install activates a plan. The first process of a sandbox calls it before any other program runs.
// In a restored sandbox the plan is active already, and Install checks that it is the same.
func Install(t *sentry.Task, plan Plan) error {
	root := t.MountNamespace().Root(t)
	defer root.DecRef(t)
	lower, err := lowerOf(root)
	if err != nil {
		return err
	}
	fs, err := private[*vfs.Filesystem](lower.Mount(), "fs")
	if err != nil {
		return err
	}
	if f, ok := (*fs).Impl().(*filesystem); ok {
		return f.checkPlan(plan)
	}
	if len(plan.Places)+len(plan.Files) == 0 {
		return mountMissing(t, root, plan.Covers)
	}
	f, err := newFilesystem(t, *fs, lower, plan)
	if err != nil {
		return err
	}
	// Only the overlay uses the mount below it, and reads the mount's file system on each lookup.
	*fs = &f.vfsfs
	for _, place := range plan.Places {
		if err := checkOwner(t, root, place, plan); err != nil {
			return err
		}
	}
	return mountAll(t, root, plan.Covers)
}

// mountAll mounts covers.
func mountAll(t *sentry.Task, root vfs.VirtualDentry, covers []Cover) error {
	for _, c := range covers {
		if err := c.mount(t, root); err != nil {
			return fmt.Errorf("cover %s: %w", c.Path, err)
		}
	}
	return nil
}

// mountMissing mounts the covers that a restored state does not have. A plan that translates no
// owners leaves no other trace in a state.
func mountMissing(t *sentry.Task, root vfs.VirtualDentry, covers []Cover) error {
	for _, c := range covers {
		if c.Blank {
			return fmt.Errorf("cover %s: only a translation of owners remembers that a directory is empty", c.Path)
		}
		err := c.check(t, root)
		if linuxerr.Equals(linuxerr.EROFS, err) {
			err = c.mount(t, root)
		}
		if err != nil {
			return fmt.Errorf("cover %s: %w", c.Path, err)
		}
	}
	return nil
}

// checkPlan returns an error unless f was made from the plan. A saved state that continued with
// another plan could show files that the new plan covers.
func (f *filesystem) checkPlan(plan Plan) error {
	text, err := plan.Text()
	if err != nil {
		return err
	}
	if f.plan != text {
		return fmt.Errorf("the state was saved with different owners of files: %s instead of %s", f.plan, text)
	}
	return nil
}

// checkOwner looks up a place and returns an error unless it belongs to the user. The overlay
// caches a file's owner at its first lookup, so a place that was looked up too early would keep the
// host's owner.
func checkOwner(t *sentry.Task, root vfs.VirtualDentry, place string, plan Plan) error {
	stat, err := t.Kernel().VFS().StatAt(t, creds(t), at(root, place), &vfs.StatOptions{Mask: ownerMask})
	if err != nil {
		return fmt.Errorf("stat %s: %w", place, err)
	}
	if stat.UID != plan.UID || stat.GID != plan.GID {
		return fmt.Errorf("%s belongs to %d:%d, not to %d:%d", place, stat.UID, stat.GID, plan.UID, plan.GID)
	}
	return nil
}

// mount mounts the cover. Programs cannot remove it: they may not unmount in this namespace, and in
// their own namespaces its mounts are locked.
func (c Cover) mount(t *sentry.Task, root vfs.VirtualDentry) error {
	v, target := t.Kernel().VFS(), at(root, c.Path)
	opts := vfs.MountOptions{ReadOnly: true, Flags: vfs.MountFlags{NoSUID: true, NoDev: true}}
	if c.Blank {
		opts.Flags.NoExec = true
		opts.GetFilesystemOptions = vfs.GetFilesystemOptions{InternalMount: true, Data: "mode=0555,size=4096"}
		_, err := v.MountAt(t, creds(t), "tmpfs", target, "tmpfs", &opts)
		return err
	}
	// The bind includes the mounts below the path, so that paths which they hide stay hidden.
	if err := v.BindAt(t, creds(t), target, target, true); err != nil {
		return err
	}
	if err := v.RemountAt(t, creds(t), target, &opts); err != nil {
		return err
	}
	return c.check(t, root)
}

// check returns an error unless a read-only mount covers the path.
func (c Cover) check(t *sentry.Task, root vfs.VirtualDentry) error {
	covered, err := t.Kernel().VFS().GetDentryAt(t, creds(t), at(root, c.Path), &vfs.GetDentryOptions{})
	if err != nil {
		return err
	}
	defer covered.DecRef(t)
	if covered.Mount() == root.Mount() || !covered.Mount().ReadOnly() {
		return linuxerr.EROFS
	}
	return nil
}

// at returns an operation on a path in the first process's view. It does not follow links: those in
// the path were resolved before the sandbox was created.
func at(root vfs.VirtualDentry, path string) *vfs.PathOperation {
	return &vfs.PathOperation{Root: root, Start: root, Path: fspath.Parse(path)}
}

// creds returns the credentials of the kernel itself.
func creds(t *sentry.Task) *auth.Credentials {
	return auth.NewRootCredentials(t.Kernel().RootUserNamespace())
}

// private returns an unexported field of a gVisor struct. If a version of gVisor has another name
// or type for the field, private returns an error, and no sandbox starts.
func private[T any](of any, name string) (*T, error) {
	field := reflect.ValueOf(of)
	if field.Kind() != reflect.Pointer || field.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("gVisor's %T is not a pointer to a struct", of)
	}
	if field = field.Elem().FieldByName(name); !field.IsValid() {
		return nil, fmt.Errorf("gVisor's %T has no %s", of, name)
	}
	found, ok := reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Interface().(*T)
	if !ok {
		return nil, fmt.Errorf("%s of gVisor's %T is a %v, not a %v", name, of, field.Type(), reflect.TypeFor[T]())
	}
	return found, nil
}
