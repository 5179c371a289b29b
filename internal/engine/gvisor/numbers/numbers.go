// Package numbers owns the device and inode numbers of files in a sandbox: a host file keeps its
// numbers when it is changed, which gVisor's overlay does not ensure. It runs in gVisor's kernel
// process.
package numbers

import (
	"reflect"
	"sync/atomic"
	"unsafe"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/context"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// The overlay shows a file with the numbers of the layer that contains it. With its first change,
// or its first hard link, a host file is copied to the upper layer, and becomes another file for
// programs that compare numbers: git clone, rsync, find -samefile. Therefore both layers get one
// device, the numbers of new files begin beyond those of the host's files, and a copy gets the
// number of its original.

// firstMade is the first number of files that are created in the sandbox. The file server numbers
// the host's files from 1, and JavaScript represents integers up to 2^53 exactly.
const firstMade = 1 << 40

// maxBefore bounds the files that were created before numbers started there: directories in which
// gVisor mounts something. A kernel with more was saved by a version without this package, and
// keeps its numbers.
const maxBefore = 1024

// A copied host file may have the number of such a file, and an archive of the sandbox would treat
// two files with one number as hard links of one file. Therefore the number at which later ones
// begin encodes how many there were, and no copy gets one of their numbers.
const beforeShift = 24

// before returns how many files were created before numbers started at firstMade.
func before(last uint64) uint64 {
	if last < firstMade {
		return 0
	}
	return min((last-firstMade)>>beforeShift, maxBefore)
}

// device is the minor number of both layers, plus one. 0 means that it is not known yet, and apart
// means that the layers have different devices.
var device atomic.Uint64

const rangeSize = 1 << 40

// at returns a pointer to a field of a value.
func at[T any](of unsafe.Pointer, offset uintptr) *T { return (*T)(unsafe.Add(of, offset)) }

// object returns the pointer in an interface.
func object(impl vfs.DentryImpl) unsafe.Pointer { return reflect.ValueOf(impl).UnsafePointer() }

// begin gives both layers the same device, before a program creates or copies a file.
func begin(t *sentry.Task) {
	if device.Load() != 0 {
		return
	}
	memory := t.MemoryManager()
	if memory == nil {
		return
	}
	program := memory.Executable()
	if program == nil {
		return
	}
	defer program.DecRef(t)
	d := program.VirtualDentry().Dentry().Impl()
	over := overlayOf(d)
	top := t.FSContext().RootDirectory()
	defer top.DecRef(t)
	root := top.Dentry().Impl()
	if over == nil || over != overlayOf(root) {
		return // another program reveals it
	}
	if over.err != nil || at[atomicbitops.Uint32](object(d), over.copied).Load() != 0 {
		return
	}
	host := at[atomicbitops.Uint32](object(d), over.minor).Load()
	upper := at[vfs.VirtualDentry](object(root), over.upper)
	if at[atomicbitops.Uint32](object(root), over.copied).Load() == 0 || !upper.Ok() {
		return
	}
	made := upperOf(upper.Dentry().Impl())
	if made == nil || made.err != nil {
		device.Store(rangeSize)
		return
	}
	fs := *at[unsafe.Pointer](*at[unsafe.Pointer](object(upper.Dentry().Impl()), made.inode), made.fs)
	last := at[atomicbitops.Uint64](fs, made.last)
	if n := last.Load(); n < firstMade && (n > maxBefore || !last.CompareAndSwap(n, firstMade+n<<beforeShift)) {
		if n > maxBefore {
			device.Store(rangeSize)
		}
		return
	}
	atomic.StoreUint32(at[uint32](fs, made.minor), host)
	device.Store(uint64(host) + 1)
}

// CopyNumbers gives a copied file the numbers of its original. content reports that the copy will
// be written. If the host's file has several names, the copy is then a different file than the
// other names, and those keep the numbers.
func CopyNumbers(ctx context.Context, k *sentry.Kernel, vd vfs.VirtualDentry, content bool) {
	one := device.Load()
	if one == 0 || one == rangeSize {
		return
	}
	over := overlayOf(vd.Dentry().Impl())
	if over == nil || over.err != nil {
		return
	}
	d := object(vd.Dentry().Impl())
	// Once this is set, the fields that are read below no longer change.
	if at[atomicbitops.Uint32](d, over.copied).Load() == 0 {
		return
	}
	lower, upper := *at[[]vfs.VirtualDentry](d, over.lower), *at[vfs.VirtualDentry](d, over.upper)
	if len(lower) == 0 {
		return // it was created here, or was copied when it was last looked up
	}
	made := upperOf(upper.Dentry().Impl())
	if made == nil || made.err != nil {
		return
	}
	inode := *at[unsafe.Pointer](object(upper.Dentry().Impl()), made.inode)
	fs := *at[unsafe.Pointer](inode, made.fs)
	number := at[uint64](inode, made.ino)
	if atomic.LoadUint64(number) < firstMade || uint64(atomic.LoadUint32(at[uint32](fs, made.minor)))+1 != one {
		return
	}
	const mask = linux.STATX_INO | linux.STATX_NLINK | linux.STATX_TYPE
	stat, err := k.VFS().StatAt(ctx, auth.NewRootCredentials(k.RootUserNamespace()),
		&vfs.PathOperation{Root: lower[0], Start: lower[0]}, &vfs.StatOptions{Mask: mask})
	if err != nil || stat.Mask&mask != mask || stat.Mode&linux.S_IFMT == linux.S_IFDIR || content && stat.Nlink > 1 {
		return
	}
	if stat.Ino <= before(at[atomicbitops.Uint64](fs, made.last).Load()) {
		return
	}
	atomic.StoreUint64(number, stat.Ino)
	at[atomicbitops.Uint64](d, over.ino).Store(stat.Ino)
}
