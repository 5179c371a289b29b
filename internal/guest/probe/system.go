package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// checkHidden checks that nothing can be read at a path: it is absent or empty, or even root inside
// cannot access it.
func checkHidden(_ context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("hidden %s: %w", path, err)
	}
	if info.IsDir() {
		if names, _ := f.Readdirnames(1); len(names) > 0 {
			return fmt.Errorf("the hidden directory %s shows files", path)
		}
		return nil
	}
	var b [1]byte
	if n, err := f.Read(b[:]); n > 0 || err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("the hidden file %s can be read", path)
	}
	return nil
}

// probeName is a temporary file for testing whether a directory is read-only.
const probeName = ".crannog-probe"

// checkReadOnly tries to write to a read-only path. It skips missing paths.
func checkReadOnly(_ context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read-only %s: %w", path, err)
	}
	if !info.IsDir() {
		f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil
		}
		_ = f.Close()
		return fmt.Errorf("the read-only file %s can be written", path)
	}
	inside := filepath.Join(path, probeName)
	f, err := os.OpenFile(inside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil
	}
	return errors.Join(fmt.Errorf("new files can be created in the read-only directory %s", path), f.Close(), os.Remove(inside))
}

// checkMemory checks that the kernel inside offers no more than the limit.
func checkMemory(maximum int64) error {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	var kib int64
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("MemTotal:")); ok {
			fields := bytes.Fields(rest)
			if len(fields) == 0 {
				break
			}
			if kib, err = strconv.ParseInt(string(fields[0]), 10, 64); err != nil {
				return fmt.Errorf("memory: %w", err)
			}
		}
	}
	if kib == 0 {
		return errors.New("the kernel inside does not report its memory")
	}
	if kib<<10 > maximum {
		return fmt.Errorf("there are %d bytes of memory, more than the limit of %d", kib<<10, maximum)
	}
	return nil
}

// checkDisk checks that the root's file system is no larger than the limits.
func checkDisk(bytes, files int64) error {
	var stat unix.Statfs_t
	if err := unix.Statfs("/", &stat); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	if size := int64(stat.Blocks) * stat.Bsize; bytes > 0 && size > bytes {
		return fmt.Errorf("there are %d bytes of disk, more than the limit of %d", size, bytes)
	}
	// Some file systems do not count their files and report zero.
	if files > 0 && (stat.Files == 0 || stat.Files > uint64(files)) {
		return fmt.Errorf("there is room for %d files, where the limit is %d", stat.Files, files)
	}
	return nil
}

// checkProcesses returns an error if a user can have more processes than the limit. All processes
// inside descend from this one and cannot raise the limit that they inherit.
func checkProcesses(maximum int64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
		return fmt.Errorf("processes: %w", err)
	}
	if limit.Max > uint64(maximum) || limit.Cur > uint64(maximum) {
		return fmt.Errorf("there may be %d processes, more than the limit of %d", max(limit.Max, limit.Cur), maximum)
	}
	return nil
}
