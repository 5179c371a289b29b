// Package numbers owns the device and inode numbers of files in a sandbox. It makes a host file
// keep its numbers when it is changed, which gVisor's overlay does not do. It runs in gVisor's
// kernel process.
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

// firstNumber is the first inode number of files that are created in the sandbox. It is beyond the
// numbers of the host's files, which the file server numbers from 1, and below 2^53, up to which
// JavaScript represents integers exactly.
const firstNumber = 1 << 40

// maxEarlyFiles bounds the number of files in the upper layer that were created before this package
// set the next number to firstNumber: directories in which gVisor mounts file systems. A kernel
// with more such files was saved by a version without this package, and keeps its numbers.
const maxEarlyFiles = 1024

// earlyFilesShift is the position at which the next number encodes how many such early files there
// are. No copy of a host file gets the number of an early file: an archive of the sandbox would
// treat two files with one number as hard links of one file.
const earlyFilesShift = 24

// earlyFiles returns how many files were created before numbers started at firstNumber, given the
// last number.
func earlyFiles(last uint64) uint64 {
	if last < firstNumber {
		return 0
	}
	return min((last-firstNumber)>>earlyFilesShift, maxEarlyFiles)
}

// device is the minor number of both layers, plus one. 0 means that it is not known yet, and
// differentDevices that the layers have different devices.
var device atomic.Uint64

const differentDevices = 1 << 40

// at returns a pointer to a field of a value.
func at[T any](value unsafe.Pointer, offset uintptr) *T { return (*T)(unsafe.Add(value, offset)) }

// object returns the pointer in an interface.
func object(impl vfs.DentryImpl) unsafe.Pointer { return reflect.ValueOf(impl).UnsafePointer() }

// unifyDevices gives both layers the same device. It is called before a program creates or copies a
// file.
func unifyDevices(t *sentry.Task) {
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
		return // a later program has the layers as expected
	}
	if over.err != nil || at[atomicbitops.Uint32](object(d), over.copied).Load() != 0 {
		return
	}
	host := at[atomicbitops.Uint32](object(d), over.minor).Load()
	upper := at[vfs.VirtualDentry](object(root), over.upper)
	if at[atomicbitops.Uint32](object(root), over.copied).Load() == 0 || !upper.Ok() {
		return
	}
	fields := upperOf(upper.Dentry().Impl())
	if fields == nil || fields.err != nil {
		device.Store(differentDevices)
		return
	}
	fs := *at[unsafe.Pointer](*at[unsafe.Pointer](object(upper.Dentry().Impl()), fields.inode), fields.fs)
	last := at[atomicbitops.Uint64](fs, fields.last)
	if n := last.Load(); n < firstNumber && (n > maxEarlyFiles || !last.CompareAndSwap(n, firstNumber+n<<earlyFilesShift)) {
		if n > maxEarlyFiles {
			device.Store(differentDevices)
		}
		return
	}
	atomic.StoreUint32(at[uint32](fs, fields.minor), host)
	device.Store(uint64(host) + 1)
}

// CopyNumbers gives a copied file the numbers of its original. content is set if the copy will be
// written. If the host's file has several names, the copy then becomes a separate file with new
// numbers, and the other names keep the old numbers.
func CopyNumbers(ctx context.Context, k *sentry.Kernel, vd vfs.VirtualDentry, content bool) {
	shared := device.Load()
	if shared == 0 || shared == differentDevices {
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
		return // the file was created in the sandbox, or was copied before its last lookup
	}
	fields := upperOf(upper.Dentry().Impl())
	if fields == nil || fields.err != nil {
		return
	}
	inode := *at[unsafe.Pointer](object(upper.Dentry().Impl()), fields.inode)
	fs := *at[unsafe.Pointer](inode, fields.fs)
	number := at[uint64](inode, fields.ino)
	if atomic.LoadUint64(number) < firstNumber || uint64(atomic.LoadUint32(at[uint32](fs, fields.minor)))+1 != shared {
		return
	}
	const mask = linux.STATX_INO | linux.STATX_NLINK | linux.STATX_TYPE
	stat, err := k.VFS().StatAt(ctx, auth.NewRootCredentials(k.RootUserNamespace()),
		&vfs.PathOperation{Root: lower[0], Start: lower[0]}, &vfs.StatOptions{Mask: mask})
	if err != nil || stat.Mask&mask != mask || stat.Mode&linux.S_IFMT == linux.S_IFDIR || content && stat.Nlink > 1 {
		return
	}
	if stat.Ino <= earlyFiles(at[atomicbitops.Uint64](fs, fields.last).Load()) {
		return
	}
	atomic.StoreUint64(number, stat.Ino)
	at[atomicbitops.Uint64](d, over.ino).Store(stat.Ino)
}
