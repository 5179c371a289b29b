// Package confine owns how a process permanently gives up everything it does not need: its user,
// capabilities, files, system calls and resources. Hostile data that it reads afterwards may
// exploit a bug and take it over.
package confine

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Rules are the rights and limits that the process keeps.
type Rules struct {
	// UID is the user to which a root process switches. A process of another user keeps its user.
	UID int
	// Read lists the files and directories that stay readable if the kernel has Landlock. Missing
	// ones are ignored.
	Read []string
	// Start lists files that the program reads at its start, before main. They stay readable only
	// in a build with cgo, which restarts itself.
	Start []string
	// Spool, if set, is a directory in which unnamed files can be created through an open
	// descriptor of it.
	Spool string
	// Files is the maximum number of open descriptors.
	Files uint64
	// FileBytes is the maximum size of a file that the process writes.
	FileBytes uint64
	// SoftMemory is the memory limit of the garbage collector. HardMemory is the limit at which the
	// process ends.
	SoftMemory, HardMemory uint64
}

// Report describes the confinement in force, for display.
type Report struct {
	UID          int    `json:"uid"`
	Capabilities bool   `json:"capabilities"` // whether any is left
	NoNewPrivs   bool   `json:"no_new_privs"`
	Dumpable     bool   `json:"dumpable"`
	Seccomp      bool   `json:"seccomp"`
	Landlock     int    `json:"landlock"` // its version, or zero if the kernel has none
	Files        uint64 `json:"files"`
	SoftMemory   uint64 `json:"soft_memory"`
	HardMemory   uint64 `json:"hard_memory"`
	// Notes lists, in a sentence each, what this host could not enforce.
	Notes []string `json:"notes,omitempty"`
}

// maxThreads limits the runtime's threads. Each write to a slow disk needs one; a thousand threads
// are a bug.
const maxThreads = 1024

// Process is a process that has read the data it needs, and is about to be confined.
type Process struct {
	// UID is the user who started the process.
	UID int
	// Gathered is what was read before the confinement.
	Gathered []byte

	rules Rules
	notes []string
	// secured is set if the secure bits were set, and bounded if the bounding set was emptied. Each
	// needs a privilege.
	secured, bounded bool
}

// Begin must be called first in main. It calls gather (if not nil) to read what cannot be read
// after the confinement. In a build with cgo it restarts the program and does not return; after the
// restart it returns the data that was gathered before. Inherited descriptors without
// close-on-exec, arguments and environment are preserved.
func Begin(r Rules, gather func() ([]byte, error)) (*Process, error) {
	if r.Files == 0 || r.FileBytes == 0 || r.SoftMemory == 0 || r.HardMemory == 0 {
		return nil, errors.New("confine: a limit is zero, which does not mean unlimited")
	}
	if text, again := os.LookupEnv(Variable); again && restarts {
		return resume(r, text)
	}
	b := &Process{UID: unix.Geteuid(), rules: r}
	if gather != nil {
		var err error
		if b.Gathered, err = gather(); err != nil {
			return nil, err
		}
	}
	if !restarts {
		return b, nil
	}
	return nil, b.restart()
}

// Apply removes the rights of every thread of this process. If it fails, some rights may have been
// removed and others not, so the process must exit.
func (b *Process) Apply() (Report, error) {
	report := Report{Notes: b.notes, SoftMemory: b.rules.SoftMemory, HardMemory: b.rules.HardMemory}
	debug.SetMaxThreads(maxThreads)
	debug.SetMemoryLimit(int64(min(b.rules.SoftMemory, math.MaxInt64)))
	// Writing beyond the limit then returns an error. Otherwise the kernel's signal would end the
	// process.
	signal.Ignore(unix.SIGXFSZ)
	rights := b.dropRights
	if restarts {
		rights = b.checkInherited
	}
	if err := rights(&report); err != nil {
		return report, err
	}
	if err := hideOtherUsers(); err != nil {
		return report, fmt.Errorf("confine process: %w", err)
	}
	// The filter comes last, because it forbids all system calls above.
	if err := filterCalls(&report); err != nil {
		return report, fmt.Errorf("confine system calls: %w", err)
	}
	return verify(report)
}

// dropRights removes all rights whose removal survives a restart of the program.
func (b *Process) dropRights(report *Report) error {
	for _, s := range b.steps() {
		if err := s.do(report); err != nil {
			return fmt.Errorf("confine %s: %w", s.name, err)
		}
	}
	return nil
}

// step removes one kind of rights.
type step struct {
	name string
	do   func(*Report) error
}

func (b *Process) steps() []step {
	return []step{
		// Limits come first, because root may raise its number of files.
		{"limits", b.limit},
		{"secure bits", b.setSecureBits},
		{"bounding set", b.dropBounding},
		{"user", b.changeUser},
		{"capabilities", dropCapabilities},
		{"privileges", noNewPrivileges},
		{"files", b.restrictFiles},
	}
}
