package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// make builds the sandbox. refused is set if the request itself is at fault.
func (r *Request) make() (refused bool, err error) {
	if err := r.renew(); err != nil {
		return false, err
	}
	// Without memory the whole machine ends, as a sandbox does on other engines: the kernel could end
	// any of its programs otherwise, and say nothing.
	if err := os.WriteFile("/proc/sys/vm/panic_on_oom", []byte("2"), 0); err != nil {
		return false, err
	}
	// A request for more memory than the machine has is granted, as on other engines: using it then
	// ends the sandbox with the reason that its memory ran out. By default the kernel refuses such a
	// request, and the program alone would fail.
	if err := os.WriteFile("/proc/sys/vm/overcommit_memory", []byte("1"), 0); err != nil {
		return false, err
	}
	if err := r.bound(); err != nil {
		return false, fmt.Errorf("limit of processes: %w", err)
	}
	if err := base(); err != nil {
		return false, fmt.Errorf("base of the root: %w", err)
	}
	for _, serial := range r.Disks {
		if err := mountDisk(serial); err != nil {
			return false, fmt.Errorf("disk %s: %w", serial, err)
		}
	}
	if r.Network {
		if err := network(); err != nil {
			return false, fmt.Errorf("network interface: %w", err)
		}
	}
	return r.Root.MakeOwn()
}

// renew sets the clock and adds the host's random bytes to the kernel's.
func (r *Request) renew() error {
	now := unix.NsecToTimeval(r.Time.UnixNano())
	if err := unix.Settimeofday(&now); err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	if len(r.Seed) == 0 {
		return errors.New("the request has no random bytes")
	}
	random, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer random.Close()
	// The kernel's struct rand_pool_info: bits, bytes and the bytes themselves.
	pool := make([]byte, 8+(len(r.Seed)+3)/4*4)
	*(*int32)(unsafe.Pointer(&pool[0])) = int32(len(r.Seed) * 8)
	*(*int32)(unsafe.Pointer(&pool[4])) = int32(len(r.Seed))
	copy(pool[8:], r.Seed)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, random.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool[0]))); errno != 0 {
		return fmt.Errorf("random numbers: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, random.Fd(), unix.RNDRESEEDCRNG, 0); errno != 0 {
		return fmt.Errorf("random numbers: %w", errno)
	}
	return nil
}

// bound puts this process, and with it all that it starts, under a limit of processes that holds for
// root as well. No program sees the group's files.
func (r *Request) bound() error {
	const mount, group = "/groups", "/groups/sandbox"
	if err := os.MkdirAll(mount, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("cgroup2", mount, "cgroup2", 0, ""); err != nil {
		return err
	}
	if err := os.WriteFile(mount+"/cgroup.subtree_control", []byte("+pids"), 0); err != nil {
		return err
	}
	if err := os.Mkdir(group, 0o700); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(group+"/pids.max", []byte(strconv.FormatInt(r.Tasks, 10)), 0),
		os.WriteFile(group+"/cgroup.procs", []byte("1"), 0),
		unix.Unmount(mount, unix.MNT_DETACH),
	)
}

// base puts a file system under this process that can be left: the kernel's first root cannot.
func base() error {
	const at = "/root"
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m,mode=755"); err != nil {
		return err
	}
	for _, dir := range []string{"tmp", "disks"} {
		if err := os.Mkdir(filepath.Join(at, dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"dev", "proc", "sys"} {
		if err := os.Mkdir(filepath.Join(at, dir), 0o755); err != nil {
			return err
		}
		if err := unix.Mount("/"+dir, filepath.Join(at, dir), "", unix.MS_MOVE, ""); err != nil {
			return err
		}
	}
	return errors.Join(os.Chdir(at), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), os.Chdir("/"))
}

// mountDisk mounts the disk with a serial number at its place.
func mountDisk(serial string) error {
	device, err := await("the disk", func() string {
		names, _ := filepath.Glob("/sys/block/vd*/serial") // fails only for patterns that are none
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
	place := filepath.Join("/disks", serial)
	if err := os.Mkdir(place, 0o755); err != nil {
		return err
	}
	return unix.Mount(device, place, "erofs", unix.MS_RDONLY|unix.MS_NODEV, "")
}
