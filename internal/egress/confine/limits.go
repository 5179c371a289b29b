package confine

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// limit sets the resource limits. It does not set RLIMIT_NPROC, which counts all processes of the
// user: their threads would then block those of this process. The filter forbids starting processes
// anyway.
func (b *Process) limit(report *Report) error {
	for resource, value := range b.rules.limits() {
		var old unix.Rlimit
		if err := unix.Getrlimit(resource, &old); err != nil {
			return err
		}
		if err := setLimit(resource, min(value, old.Max)); err != nil {
			return fmt.Errorf("resource %d: %w", resource, err)
		}
	}
	return limitFiles(b.rules.Files, report)
}

// limits are the resource limits, except the number of files.
func (r Rules) limits() map[int]uint64 {
	return map[int]uint64{
		unix.RLIMIT_CORE:  0, // a core file would contain every secret
		unix.RLIMIT_FSIZE: r.FileBytes,
		unix.RLIMIT_DATA:  r.HardMemory,
	}
}

// limitFiles raises the limit of open files as far as permitted, and adds a note if that is not
// enough.
func limitFiles(want uint64, report *Report) error {
	report.Files = want
	err := setLimit(unix.RLIMIT_NOFILE, want)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return err
	}
	report.Files = old.Max
	report.Notes = append(report.Notes, fmt.Sprintf("only %d files may be open, %d are wanted: raise the hard limit (ulimit -Hn)", old.Max, want))
	return setLimit(unix.RLIMIT_NOFILE, old.Max)
}

// setLimit sets both limits of a resource. It uses package syscall, which then does not restore the
// limit of open files in programs that it starts.
func setLimit(resource int, value uint64) error {
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value})
}
