package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// A quota that a program inside cannot exceed must be enforced by the host. Project quotas need a
// file system that was made for them, and no measurement from outside is in time. Each volume
// therefore has an ext4 file system of its own. The host alone writes its blocks: a sandbox gets
// only the mounted files.

// mkfs is the program that creates file systems.
const mkfs = "mkfs.ext4"

// findMkfs returns the path of the program, which is often not in the PATH of users.
func findMkfs() (string, error) {
	if path, err := exec.LookPath(mkfs); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		path := filepath.Join(dir, mkfs)
		if unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("the program %s is missing", mkfs)
}

// CanEnforce returns an error if this host cannot enforce quotas of volumes.
func CanEnforce() error {
	refuse := func(why string) error {
		return fault.New(fault.Unsupported, "volume_quota_unsupported", "this host cannot enforce the quota of a volume: "+why).
			WithHint("run the server as root on a host with loop devices and e2fsprogs, or create the volume with --unlimited")
	}
	if os.Geteuid() != 0 {
		return refuse("its file system can only be mounted by root")
	}
	if err := unix.Access(loopControl, unix.R_OK|unix.W_OK); err != nil {
		return refuse(loopControl + ": " + err.Error())
	}
	if _, err := findMkfs(); err != nil {
		return refuse(err.Error())
	}
	return nil
}

// makeImage creates the file of a volume with an empty file system, and returns how many files it
// can hold.
func (s *Store) makeImage(ctx context.Context, dir string, v Volume) (int64, error) {
	if err := CanEnforce(); err != nil {
		return 0, err
	}
	path := filepath.Join(dir, imageName)
	if err := allocate(path, v.Bytes); err != nil {
		return 0, err
	}
	s.step("allocated")
	program, err := findMkfs()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program, "-q", "-F", "-m", "0", "-b", "4096", "-I", "256", "-N", strconv.FormatInt(v.Files, 10),
		"-O", "^resize_inode", "-E", fmt.Sprintf("nodiscard,root_owner=%d:%d", UserID, UserID), path)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return 0, fault.Wrap(err, fault.Invalid, "volume_quota_invalid", "no file system of this size and number of files can be created: "+strings.TrimSpace(output.String()))
	}
	s.step("formatted")
	at := filepath.Join(dir, mountName)
	if err := os.Mkdir(at, 0o700); err != nil {
		return 0, err
	}
	if err := mountImage(path, at); err != nil {
		return 0, err
	}
	s.step("mounted")
	var stat unix.Statfs_t
	err = errors.Join(os.Remove(filepath.Join(at, "lost+found")), unix.Statfs(at, &stat), unmountAt(at))
	if err == nil {
		err = syncFile(path)
	}
	return int64(stat.Ffree), err
}

// allocate reserves the space of a file. Without the reservation, a full disk of the host would
// break the file system of the volume.
func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &stat); err != nil {
		return err
	}
	full := func() error {
		return fault.Newf(fault.Exhausted, "disk_full", "the disk has no room for a volume of %d bytes", size).
			WithHint("choose a smaller --size, or remove files; crannog prune removes unused ones")
	}
	if free := int64(stat.Bavail) * stat.Bsize; size > free/10*9 {
		return full()
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return full()
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fault.Wrap(err, fault.Unsupported, "volume_quota_unsupported", "the file system of the state directory cannot reserve space for a volume")
	}
	return err
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
