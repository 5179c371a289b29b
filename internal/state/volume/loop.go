package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const loopControl = "/dev/loop-control"

// loopAttempts bounds how often another free loop device is tried. Other programs use them too.
const loopAttempts = 64

// mountImage mounts the file system in a file. The kernel frees the loop device at the unmount.
func mountImage(image, at string) (err error) {
	backing, err := os.OpenFile(image, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer backing.Close()
	device, err := loopFor(backing, image)
	if err != nil {
		return fmt.Errorf("mount %s: %w", image, err)
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	// Programs of the host must not gain rights through files that a sandbox has written.
	if err := unix.Mount(device.Name(), at, "ext4", unix.MS_NOSUID|unix.MS_NODEV, "errors=remount-ro"); err != nil {
		return fmt.Errorf("mount %s: %w", image, err)
	}
	return nil
}

// loopFor returns a loop device of a file. A device that has the file already is used again: with
// two devices, the kernel would not see that both are one file system, and would destroy it. A
// sandbox of an earlier server may still use the first one.
func loopFor(backing *os.File, image string) (*os.File, error) {
	var want unix.Stat_t
	if err := unix.Fstat(int(backing.Fd()), &want); err != nil {
		return nil, err
	}
	devices, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return nil, err
	}
	for _, dir := range devices {
		device, err := os.OpenFile("/dev/"+filepath.Base(filepath.Dir(dir)), os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// The open descriptor keeps the device from being freed.
		info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
		if err == nil && info.Device == want.Dev && info.Inode == want.Ino {
			return device, nil
		}
		device.Close()
	}
	return newLoop(backing, image)
}

func newLoop(backing *os.File, image string) (*os.File, error) {
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], image)
	for range loopAttempts {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		if err = unix.IoctlLoopConfigure(int(device.Fd()), &config); err == nil {
			return device, nil
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, errors.New("no loop device is free")
}

// unmountAt unmounts a directory if a file system is mounted there.
func unmountAt(dir string) error {
	mounted, err := isMounted(dir)
	if err != nil || !mounted {
		return ignoreMissing(err)
	}
	return unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
}

// isMounted reports whether a directory is on another file system than its parent.
func isMounted(dir string) (bool, error) {
	var at, above unix.Stat_t
	if err := unix.Lstat(dir, &at); err != nil {
		return false, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if err := unix.Lstat(filepath.Dir(dir), &above); err != nil {
		return false, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return at.Dev != above.Dev, nil
}
