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

	"golang.org/x/sys/unix"
)

// Rules say what the process keeps.
type Rules struct {
	// UID is who a process of root becomes. Anybody else stays who they are.
	UID int
	// Read are the files and directories that stay readable where the kernel
	// has Landlock. What does not exist is passed over.
	Read []string
	// Start are files that the program reads while it starts, before main.
	// They stay readable in a build with C code only, which is started again.
	Start []string
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

// Begun is a process that has read what it needs, and is to be confined.
type Begun struct {
	// UID is who started the process.
	UID int
	// Gathered is what was read while the process still could.
	Gathered []byte

	rules Rules
	notes []string
	// secured and bounded are whether the secure bits were set and the set
	// that bounds what a program may gain was emptied: each needs a right.
	secured, bounded bool
}

// Begin comes first in the process's main. It calls gather, which may be nil,
// to read what cannot be read any more afterwards.
//
// In a build with C code it starts the program again and so does not return;
// the second time it returns what was gathered the first time. Descriptors
// without close-on-exec, arguments and environment stay as they are.
func Begin(r Rules, gather func() ([]byte, error)) (*Begun, error) {
	if r.Files == 0 || r.FileBytes == 0 || r.SoftMemory == 0 || r.HardMemory == 0 {
		return nil, errors.New("confine: a limit is zero, which is not unlimited")
	}
	if text, again := os.LookupEnv(Variable); again && staged {
		return resume(r, text)
	}
	b := &Begun{UID: unix.Geteuid(), rules: r}
	if gather != nil {
		var err error
		if b.Gathered, err = gather(); err != nil {
			return nil, err
		}
	}
	if !staged {
		return b, nil
	}
	return nil, b.restart()
}

// Apply takes the rights away from every thread of this process. After an
// error some may be gone and others not: the process must end.
func (b *Begun) Apply() (Report, error) {
	report := Report{Notes: b.notes, SoftMemory: b.rules.SoftMemory, HardMemory: b.rules.HardMemory}
	debug.SetMaxThreads(maxThreads)
	debug.SetMemoryLimit(int64(min(b.rules.SoftMemory, math.MaxInt64)))
	// A write beyond the limit is an error for the writer. Without this the
	// kernel's signal would end the process.
	signal.Ignore(unix.SIGXFSZ)
	rights := b.takeAway
	if staged {
		rights = b.checkInherited
	}
	if err := rights(&report); err != nil {
		return report, err
	}
	if err := hide(); err != nil {
		return report, fmt.Errorf("confine process: %w", err)
	}
	// The filter comes last, because it refuses all of the above.
	if err := filterCalls(&report); err != nil {
		return report, fmt.Errorf("confine system calls: %w", err)
	}
	return verify(report)
}

// takeAway changes all that a program keeps when it is started again.
func (b *Begun) takeAway(report *Report) error {
	for _, s := range b.steps() {
		if err := s.do(report); err != nil {
			return fmt.Errorf("confine %s: %w", s.name, err)
		}
	}
	return nil
}

type step struct {
	name string
	do   func(*Report) error
}

func (b *Begun) steps() []step {
	return []step{
		// Limits come first: root may raise its number of files.
		{"limits", b.limit},
		{"secure bits", b.secure},
		{"bounding set", b.dropBounding},
		{"user", b.become},
		{"capabilities", dropCapabilities},
		{"privileges", noNewPrivileges},
		{"files", b.restrictFiles},
	}
}
