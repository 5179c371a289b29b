package gvisor

import (
	"fmt"
	"reflect"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/rand"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"github.com/crannog/crannog/internal/engine/gvisor/clock"
	"github.com/crannog/crannog/internal/engine/gvisor/trim"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// A sandbox that is restored from the state of another sandbox needs its own host name and boot ID.
// gVisor lets only programs with CAP_SYS_ADMIN set the host name, and no program set the boot ID.
// Our kernel therefore has an additional system call. Only the first process, the guest, may use
// it.

// nameBytes is the maximum length of a host name, as in Linux.
const nameBytes = 64

// addBecome adds the system call to the tables of our kernel.
func addBecome() {
	for _, table := range callTables() {
		table.Table[guestboot.BecomeSyscall] = sentry.Syscall{
			Name: "crannog_become", Fn: become, SupportLevel: sentry.SupportFull,
			Note: "host name and boot ID of a copy, for the first process",
		}
		table.Init()
	}
}

// become is the system call. Its arguments are the address and length of a host name, which is set
// unless the length is 0, and 1 to draw a new boot ID. Before that, become installs the plan of the
// files that the sandbox's user owns.
func become(t *sentry.Task, _ uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
	if t.ThreadGroup() != t.Kernel().GlobalInit() {
		return 0, nil, linuxerr.EPERM
	}
	// This is the guest's first call after a boot, and after a restore from a saved state.
	occupied.Store(true)
	trim.SetKernel(t.Kernel())
	if err := clock.Calibrate(t.Kernel().Timekeeper()); err != nil {
		t.Warningf("programs need a system call to read the time: %v", err)
	}
	if err := setTimeWait(t.Kernel()); err != nil {
		t.Warningf("%v", err)
	}
	if err := installOwners(t); err != nil {
		t.Warningf("%v", err)
		return 0, nil, linuxerr.ENOTRECOVERABLE
	}
	size, newBootID := args[1].SizeT(), args[2].Uint()
	if size > nameBytes || newBootID > 1 {
		return 0, nil, linuxerr.EINVAL
	}
	name := make([]byte, size)
	if _, err := t.CopyInBytes(args[0].Pointer(), name); err != nil {
		return 0, nil, err
	}
	if newBootID == 1 {
		if err := drawBootID(t); err != nil {
			t.Warningf("boot ID: %v", err)
			return 0, nil, linuxerr.EIO
		}
	}
	if size > 0 {
		t.UTSNamespace().SetHostName(t, string(name))
	}
	return 0, nil, nil
}

// drawBootID replaces the text of /proc/sys/kernel/random/boot_id. gVisor draws it only once, when
// it creates the file.
func drawBootID(t *sentry.Task) error {
	root := t.MountNamespace().Root(t)
	defer root.DecRef(t)
	dentry, err := t.Kernel().VFS().GetDentryAt(t, auth.NewRootCredentials(t.Kernel().RootUserNamespace()), &vfs.PathOperation{
		Root: root, Start: root, Path: fspath.Parse("/proc/sys/kernel/random/boot_id"),
	}, &vfs.GetDentryOptions{})
	if err != nil {
		return err
	}
	defer dentry.DecRef(t)
	file, ok := dentry.Dentry().Impl().(*kernfs.Dentry)
	if !ok {
		return fmt.Errorf("the file has the unexpected type %T", dentry.Dentry().Impl())
	}
	text := reflect.Indirect(reflect.ValueOf(file.Inode())).FieldByName("StaticData").FieldByName("Data")
	newText := newUUID() + "\n"
	// A concurrent reader sees the old or the new text, which have the same length.
	if text.Kind() != reflect.String || !text.CanSet() || text.Len() != len(newText) {
		return fmt.Errorf("the file has an inode of the unexpected type %T", file.Inode())
	}
	text.SetString(newText)
	return nil
}

// newUUID returns a random UUID.
func newUUID() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // the host's kernel cannot provide random numbers
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
