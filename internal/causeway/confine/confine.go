// Package confine owns how a process of ours gives up, for good, what it does
// not need: its user, capabilities, files, system calls and resources. What it
// reads afterwards may be hostile, and may take the process over.
package confine

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Rules say what the process keeps.
type Rules struct {
	// UID is who a process of root becomes. Anybody else stays who they are.
	UID int
	// Read are the files and directories that stay readable where the kernel
	// has Landlock. What does not exist is passed over.
	Read []string
	// Spool, if set, is a directory in which files without a name can be
	// made, through a descriptor of it that is open already.
	Spool string
	// Files is the greatest number of descriptors.
	Files uint64
	// FileBytes is the greatest size of a file that the process writes.
	FileBytes uint64
	// SoftMemory is where the garbage collector begins to work harder,
	// HardMemory where the process ends.
	SoftMemory, HardMemory uint64
}

// Report is what is in force, for people who ask.
type Report struct {
	UID          int    `json:"uid"`
	Capabilities bool   `json:"capabilities"` // any left
	NoNewPrivs   bool   `json:"no_new_privs"`
	Dumpable     bool   `json:"dumpable"`
	Seccomp      bool   `json:"seccomp"`
	Landlock     int    `json:"landlock"` // its version, zero where the kernel has none
	Files        uint64 `json:"files"`
	SoftMemory   uint64 `json:"soft_memory"`
	HardMemory   uint64 `json:"hard_memory"`
	// Notes say what this host could not give, a sentence each.
	Notes []string `json:"notes,omitempty"`
}

// maxThreads bounds the threads that the runtime makes. A thread is needed
// for each write to a slow disk; a thousand of them is a fault.
const maxThreads = 1024

// Apply takes the rights away from every thread of this process. After an
// error some may be gone and others not: the process must end.
func Apply(r Rules) (Report, error) {
	if r.Files == 0 || r.FileBytes == 0 || r.SoftMemory == 0 || r.HardMemory == 0 {
		return Report{}, errors.New("confine: a limit is zero, which is not unlimited")
	}
	var report Report
	debug.SetMaxThreads(maxThreads)
	debug.SetMemoryLimit(int64(min(r.SoftMemory, math.MaxInt64)))
	for _, step := range []struct {
		name string
		do   func(Rules, *Report) error
	}{
		// Limits come first: root may raise its number of files.
		{"limits", limit},
		{"bounding set", dropBounding},
		{"user", become},
		{"capabilities", dropCapabilities},
		{"process", closeProcess},
		{"files", restrictFiles},
		// The filter comes last, because it refuses all of the above.
		{"system calls", filterCalls},
	} {
		if err := step.do(r, &report); err != nil {
			return report, fmt.Errorf("confine %s: %w", step.name, err)
		}
	}
	return verify(report)
}

// limit sets what the kernel counts. RLIMIT_NPROC is not among them: it
// counts every process of the user, so that somebody else's threads would
// stop ours. The filter lets the process start none at all.
func limit(r Rules, report *Report) error {
	// A write beyond the limit is an error for the writer. Without this the
	// kernel's signal would end the process.
	signal.Ignore(unix.SIGXFSZ)
	report.SoftMemory, report.HardMemory = r.SoftMemory, r.HardMemory
	for resource, value := range map[int]uint64{
		unix.RLIMIT_CORE:  0, // a core file would hold every secret
		unix.RLIMIT_FSIZE: r.FileBytes,
		unix.RLIMIT_DATA:  r.HardMemory,
	} {
		var old unix.Rlimit
		if err := unix.Getrlimit(resource, &old); err != nil {
			return err
		}
		if err := setLimit(resource, min(value, old.Max)); err != nil {
			return fmt.Errorf("resource %d: %w", resource, err)
		}
	}
	return limitFiles(r, report)
}

// limitFiles raises the number where it may, and says where it may not.
func limitFiles(r Rules, report *Report) error {
	report.Files = r.Files
	err := setLimit(unix.RLIMIT_NOFILE, r.Files)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return err
	}
	report.Files = old.Max
	report.Notes = append(report.Notes, fmt.Sprintf("only %d files may be open, %d are wanted: raise the hard limit (ulimit -Hn)", old.Max, r.Files))
	return setLimit(unix.RLIMIT_NOFILE, old.Max)
}

// setLimit goes by way of package syscall, which then leaves the number of
// files of the programs that it starts alone.
func setLimit(resource int, value uint64) error {
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value})
}

// become changes root into a user who owns nothing.
func become(r Rules, report *Report) error {
	report.UID = unix.Geteuid()
	if report.UID != 0 {
		return nil
	}
	if r.UID <= 0 {
		return errors.New("root has nobody to become")
	}
	if !mapped("/proc/self/uid_map", r.UID) || !mapped("/proc/self/gid_map", r.UID) {
		report.Notes = append(report.Notes, fmt.Sprintf("this user namespace has no user %d, so the process stays its root, without capabilities", r.UID))
		return nil
	}
	// Groups go first: only root may change them. Each call holds for all
	// threads.
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setresgid(r.UID, r.UID, r.UID); err != nil {
		return err
	}
	if err := syscall.Setresuid(r.UID, r.UID, r.UID); err != nil {
		return err
	}
	report.UID = r.UID
	return nil
}

// mapped tells whether a user namespace knows an ID. A map that cannot be
// read counts as complete, so that the change is tried and fails loudly.
func mapped(path string, id int) bool {
	data, err := os.ReadFile(path)
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(data)) {
		var inside, outside, count int
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err == nil && id >= inside && id-inside < count {
			return true
		}
	}
	return false
}
