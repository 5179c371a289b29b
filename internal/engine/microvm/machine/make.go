package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// make builds the sandbox, and returns the machine for the guest. refused is set if the request
// itself is invalid.
func (r *Request) make() (m *overseen, refused bool, err error) {
	if err := errors.Join(setClock(r.Time), addSeed(r.Seed)); err != nil {
		return nil, false, err
	}
	// If memory runs out, the whole machine ends, as a sandbox does on other engines. Otherwise the
	// kernel could silently kill any program.
	if err := os.WriteFile("/proc/sys/vm/panic_on_oom", []byte("2"), 0); err != nil {
		return nil, false, err
	}
	// A request for more memory than the machine has is granted, as on other engines: using it then
	// ends the sandbox with the reason that its memory ran out. By default the kernel refuses such
	// a request, and the program alone would fail.
	if err := os.WriteFile("/proc/sys/vm/overcommit_memory", []byte("1"), 0); err != nil {
		return nil, false, err
	}
	if err := moveRoot(); err != nil {
		return nil, false, fmt.Errorf("base of the root: %w", err)
	}
	overseer, err := r.limitProcesses()
	if err != nil {
		return nil, false, fmt.Errorf("limit of processes: %w", err)
	}
	for _, serial := range r.Disks {
		if err := mountDisk(serial); err != nil {
			return nil, false, fmt.Errorf("disk %s: %w", serial, err)
		}
	}
	if r.Network {
		if err := network(); err != nil {
			return nil, false, fmt.Errorf("network interface: %w", err)
		}
	}
	refused, err = r.Root.MakeOwn()
	return newOverseen(overseer), refused, err
}

// setClock sets the clock.
func setClock(to time.Time) error {
	now := unix.NsecToTimeval(to.UnixNano())
	if err := unix.Settimeofday(&now); err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	return nil
}

// addSeed adds random bytes of the host to the kernel's.
func addSeed(seed []byte) error {
	if len(seed) == 0 {
		return errors.New("the engine sent no random bytes")
	}
	random, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer random.Close()
	// The kernel's struct rand_pool_info: bits, bytes and the bytes themselves.
	pool := make([]byte, 8+(len(seed)+3)/4*4)
	*(*int32)(unsafe.Pointer(&pool[0])) = int32(len(seed) * 8)
	*(*int32)(unsafe.Pointer(&pool[4])) = int32(len(seed))
	copy(pool[8:], seed)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, random.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool[0]))); errno != 0 {
		return fmt.Errorf("random numbers: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, random.Fd(), unix.RNDRESEEDCRNG, 0); errno != 0 {
		return fmt.Errorf("random numbers: %w", errno)
	}
	return nil
}

// moveRoot makes a tmpfs the root of this process. The later change of the root needs that, because
// the kernel's first root cannot be detached.
func moveRoot() error {
	const newRoot = "/root"
	if err := unix.Mount("tmpfs", newRoot, "tmpfs", 0, "size=1m,mode=755"); err != nil {
		return err
	}
	for _, dir := range []string{"tmp", "disks"} {
		if err := os.Mkdir(filepath.Join(newRoot, dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"dev", "proc", "sys"} {
		if err := os.Mkdir(filepath.Join(newRoot, dir), 0o755); err != nil {
			return err
		}
		if err := unix.Mount("/"+dir, filepath.Join(newRoot, dir), "", unix.MS_MOVE, ""); err != nil {
			return err
		}
	}
	return errors.Join(os.Chdir(newRoot), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), os.Chdir("/"))
}

// mountDisk mounts the disk with a serial number.
func mountDisk(serial string) error {
	device, err := await("the disk", func() string {
		names, _ := filepath.Glob("/sys/block/vd*/serial") // fails only for an invalid pattern
		for _, file := range names {
			if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == serial {
				return filepath.Join("/dev", filepath.Base(filepath.Dir(file)))
			}
		}
		return ""
	})
	if err != nil {
		return err
	}
	target := filepath.Join("/disks", serial)
	if err := os.Mkdir(target, 0o755); err != nil {
		return err
	}
	return unix.Mount(device, target, "erofs", unix.MS_RDONLY|unix.MS_NODEV, "")
}
