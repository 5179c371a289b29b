package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/landlock"
)

const (
	// Variable is the environment variable that passes facts to the restarted program which it
	// cannot determine itself. The program does not trust it: a process that sets the variable
	// without having given up its rights gets an error.
	Variable = "CRANNOG_CONFINED"
	// Tunables is set too. Otherwise a thread of glibc registers memory with the kernel, and ends
	// the process if the filter forbids that.
	Tunables = "GLIBC_TUNABLES"

	self = "/proc/self/exe"
)

// handover is the content of Variable.
type handover struct {
	UID      int      `json:"uid"`
	Secured  bool     `json:"secured"`
	Bounded  bool     `json:"bounded"`
	Notes    []string `json:"notes,omitempty"`
	Gathered []byte   `json:"gathered,omitempty"`
}

// restart gives up the rights of one thread, and restarts the program on it. It returns only if it
// fails.
func (b *Process) restart() error {
	// Never unlock it, because nothing else may run on a thread without rights.
	runtime.LockOSThread()
	var report Report
	if err := b.dropRights(&report); err != nil {
		return err
	}
	text, err := json.Marshal(handover{UID: b.UID, Secured: b.secured, Bounded: b.bounded, Notes: report.Notes, Gathered: b.Gathered})
	if err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	env := []string{Variable + "=" + string(text), Tunables + "=glibc.pthread.rseq=0"}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, Tunables+"=") {
			env = append(env, v)
		}
	}
	// The kernel follows this link to the file itself, regardless of the directories above it.
	return fmt.Errorf("confine: start %s again: %w", self, syscall.Exec(self, os.Args, env))
}

// resume continues in the restarted program.
func resume(r Rules, text string) (*Process, error) {
	// This comes first: exec makes the process dumpable again, unless its user changes.
	if err := hideOtherUsers(); err != nil {
		return nil, fmt.Errorf("confine: %w", err)
	}
	var h handover
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return nil, fmt.Errorf("confine: %s: %w", Variable, err)
	}
	if err := errors.Join(os.Unsetenv(Variable), os.Unsetenv(Tunables)); err != nil {
		return nil, fmt.Errorf("confine: %w", err)
	}
	return &Process{UID: h.UID, Gathered: h.Gathered, rules: r, notes: h.Notes, secured: h.Secured, bounded: h.Bounded}, nil
}

// checkInherited checks with the kernel every right that dropRights removes. One thread is enough:
// exec leaves one thread, and all others are copies of it, which cannot gain rights.
func (b *Process) checkInherited(report *Report) error {
	for _, check := range []step{
		{"limits", b.checkLimits},
		{"user", b.checkUser},
		{"capabilities", b.checkCapabilities},
		{"files", checkFiles},
	} {
		if err := check.do(report); err != nil {
			return fmt.Errorf("confine: started again with too many rights: %s: %w", check.name, err)
		}
	}
	return nil
}

func (b *Process) checkLimits(report *Report) error {
	limits := b.rules.limits()
	limits[unix.RLIMIT_NOFILE] = b.rules.Files
	for resource, limit := range limits {
		var have unix.Rlimit
		if err := unix.Getrlimit(resource, &have); err != nil {
			return err
		}
		if have.Cur > limit || have.Max > limit {
			return fmt.Errorf("resource %d is limited to %d", resource, have.Max)
		}
		if resource == unix.RLIMIT_NOFILE {
			report.Files = have.Max
		}
	}
	return nil
}

func (b *Process) checkUser(*Report) error {
	real, effective, saved := unix.Getresuid()
	if real != effective || real != saved || filesUser(uint32(real)) != uint32(real) {
		return fmt.Errorf("it is both %d, %d and %d", real, effective, saved)
	}
	if b.UID != 0 {
		if real != b.UID {
			return fmt.Errorf("it is %d and was %d", real, b.UID)
		}
		return nil
	}
	if real == 0 {
		// The process may stay root where no other user exists. The kernel reports that before it
		// checks the caller's rights.
		id := uintptr(b.rules.UID)
		_, _, user := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id)
		_, _, group := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id)
		if user != unix.EINVAL && group != unix.EINVAL {
			return errors.New("it is root")
		}
		return nil
	}
	groups, err := unix.Getgroups()
	if err != nil {
		return err
	}
	realGroup, effectiveGroup, savedGroup := unix.Getresgid()
	if want := b.rules.UID; real != want || realGroup != want || effectiveGroup != want || savedGroup != want || len(groups) != 0 {
		return fmt.Errorf("it is %d, of groups %d, %d, %d, %v", real, realGroup, effectiveGroup, savedGroup, groups)
	}
	return nil
}

func (b *Process) checkCapabilities(*Report) error {
	if left, err := capabilities(); err != nil || left {
		return errors.Join(err, errors.New("it has some"))
	}
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set != 1 {
		return errors.Join(err, errors.New("it may gain privileges"))
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		ambient, err := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, c, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) { // the kernel has fewer capabilities
			return err
		}
		bounding, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
		if ambient == 1 || bounding == 1 && b.bounded {
			return fmt.Errorf("it may gain %d", c)
		}
	}
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if err != nil {
		return err
	}
	if b.secured && bits&secureBits != secureBits {
		return fmt.Errorf("the secure bits are %#x", bits)
	}
	return nil
}

// checkFiles tries to read files that every user may read.
func checkFiles(report *Report) error {
	version, err := landlock.Version()
	if err != nil || version == 0 {
		return err
	}
	f, err := os.Open("/proc/self/status")
	if err == nil {
		f.Close()
		return errors.New("it can read files")
	}
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	report.Landlock = version
	return nil
}
