package owners

import (
	gocontext "context"
	"fmt"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/overlay"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"

	"github.com/crannog/crannog/internal/filetree/fileowners"
)

// ownerMask selects the attributes of a file that hold its owner.
const ownerMask = linux.STATX_UID | linux.STATX_GID

// filesystem shows the host's files through gVisor's file client, and changes the owners of some.
// All other methods are the client's.
type filesystem struct {
	vfsfs vfs.Filesystem
	vfs.FilesystemImpl
	// mount shows the same files through the client alone. Descriptors are opened through it,
	// because the client expects the file system of their mount to be its own.
	mount    *vfs.Mount
	places   []vfs.VirtualDentry
	uid, gid uint32
	plan     string
	// files is the table of the plan, and is not saved separately.
	files fileowners.Table
}

var _ vfs.FilesystemImpl = (*filesystem)(nil)

// lowerOf returns the layer of the host's files below the overlay that is a sandbox's root.
func lowerOf(root vfs.VirtualDentry) (vfs.VirtualDentry, error) {
	opts, err := private[overlay.FilesystemOptions](root.Mount().Filesystem().Impl(), "opts")
	if err != nil {
		return vfs.VirtualDentry{}, fmt.Errorf("the root: %w", err)
	}
	if len(opts.LowerRoots) != 1 {
		return vfs.VirtualDentry{}, fmt.Errorf("the root has %d layers of host files", len(opts.LowerRoots))
	}
	return opts.LowerRoots[0], nil
}

// newFilesystem returns a filesystem for a plan. It takes over the overlay's reference to the
// client.
func newFilesystem(t *sentry.Task, client *vfs.Filesystem, lower vfs.VirtualDentry, plan Plan) (*filesystem, error) {
	v := t.Kernel().VFS()
	opts := lower.Mount().Options()
	f := &filesystem{FilesystemImpl: client.Impl(), uid: plan.UID, gid: plan.GID, files: plan.Files}
	var err error
	if f.plan, err = plan.Text(); err != nil {
		return nil, err
	}
	f.mount = v.NewDisconnectedMount(client, lower.Dentry(), &opts)
	root := vfs.MakeVirtualDentry(f.mount, lower.Dentry())
	for _, place := range plan.Places {
		found, err := v.GetDentryAt(t, creds(t), at(root, place), &vfs.GetDentryOptions{})
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", place, err)
		}
		f.places = append(f.places, found)
	}
	f.vfsfs.Init(v, client.FilesystemType(), f)
	return f, nil
}

// Release implements vfs.FilesystemImpl.Release.
func (f *filesystem) Release(ctx context.Context) {
	for _, place := range f.places {
		place.DecRef(ctx)
	}
	client := f.mount.Filesystem()
	f.mount.DecRef(ctx)
	client.DecRef(ctx)
}

// Sync implements vfs.FilesystemImpl.Sync. The kernel also knows the client and syncs it directly.
func (f *filesystem) Sync(context.Context) error { return nil }

// resolve returns the file at a path, and a function that releases the reference.
func (f *filesystem) resolve(ctx context.Context, rp *vfs.ResolvingPath) (*vfs.Dentry, func(), error) {
	if rp.Done() {
		return rp.Start(), func() {}, nil // rp holds the reference
	}
	d, err := f.GetDentryAt(ctx, rp, vfs.GetDentryOptions{})
	if err != nil {
		return nil, nil, err
	}
	return d, func() { d.DecRef(ctx) }, nil
}

// operationFor returns the operation with which the client finds a resolved file.
func (f *filesystem) operationFor(d *vfs.Dentry) *vfs.PathOperation {
	found := vfs.MakeVirtualDentry(f.mount, d)
	return &vfs.PathOperation{Root: found, Start: found}
}

// StatAt implements vfs.FilesystemImpl.StatAt.
func (f *filesystem) StatAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.StatOptions) (linux.Statx, error) {
	d, done, err := f.resolve(ctx, rp)
	if err != nil {
		return linux.Statx{}, err
	}
	defer done()
	var stat linux.Statx
	if rp.Done() {
		stat, err = f.FilesystemImpl.StatAt(ctx, rp, opts)
	} else {
		stat, err = rp.VirtualFilesystem().StatAt(ctx, rp.Credentials(), f.operationFor(d), &opts)
	}
	if err != nil || stat.Mask&(ownerMask|linux.STATX_MODE) == 0 {
		return stat, err
	}
	if f.isOwned(d) {
		stat.UID, stat.GID = f.uid, f.gid
		return stat, nil
	}
	return stat, f.setOwner(ctx, d, &stat)
}

// setOwner replaces the owner and set-id bits in a file's attributes by those in the table.
func (f *filesystem) setOwner(ctx context.Context, d *vfs.Dentry, stat *linux.Statx) error {
	if len(f.files) == 0 {
		return nil
	}
	var path fspath.Builder
	if err := f.PrependPath(ctx, vfs.VirtualDentry{}, vfs.MakeVirtualDentry(f.mount, d), &path); err != nil {
		return err
	}
	owner, ok := f.files.Of("/" + path.String())
	if !ok {
		return nil
	}
	stat.UID, stat.GID = owner.UID, owner.GID
	if stat.Mask&linux.STATX_MODE != 0 {
		stat.Mode |= owner.SetID & (linux.S_ISUID | linux.S_ISGID)
	}
	return nil
}

// isOwned reports whether a file is one of the places or below one.
func (f *filesystem) isOwned(d *vfs.Dentry) bool {
	for _, place := range f.places {
		if f.IsDescendant(place, vfs.MakeVirtualDentry(f.mount, d)) {
			return true
		}
	}
	return false
}

// OpenAt implements vfs.FilesystemImpl.OpenAt.
func (f *filesystem) OpenAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.OpenOptions) (*vfs.FileDescription, error) {
	d, done, err := f.resolve(ctx, rp)
	if err != nil {
		return nil, err
	}
	defer done()
	return rp.VirtualFilesystem().OpenAt(ctx, rp.Credentials(), f.operationFor(d), &opts)
}

// The following methods replace those that gVisor's generator would write. They make the
// translation a part of a saved state, so that it is active before any restored program runs.

func init() { state.Register((*filesystem)(nil)) }

// StateTypeName implements state.Type.
func (f *filesystem) StateTypeName() string { return "crannog/owners.filesystem" }

// StateFields implements state.Type.
func (f *filesystem) StateFields() []string {
	return []string{"vfsfs", "client", "mount", "places", "uid", "gid", "plan"}
}

// StateSave implements state.SaverLoader.
func (f *filesystem) StateSave(to state.Sink) {
	to.Save(0, &f.vfsfs)
	to.Save(1, &f.FilesystemImpl)
	to.Save(2, &f.mount)
	to.Save(3, &f.places)
	to.Save(4, &f.uid)
	to.Save(5, &f.gid)
	to.Save(6, &f.plan)
}

// StateLoad implements state.SaverLoader.
func (f *filesystem) StateLoad(_ gocontext.Context, from state.Source) {
	from.Load(0, &f.vfsfs)
	from.Load(1, &f.FilesystemImpl)
	from.Load(2, &f.mount)
	from.Load(3, &f.places)
	from.Load(4, &f.uid)
	from.Load(5, &f.gid)
	from.Load(6, &f.plan)
	from.AfterLoad(func() {
		// An error is reported by Install, which compares the text with that of its plan.
		if plan, err := Parse(f.plan); err == nil {
			f.files = plan.Files
		}
	})
}
