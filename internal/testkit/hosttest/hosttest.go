// Package hosttest owns the requirements of tests on the host. If the host does not meet them, the
// test is skipped on a developer's machine and fails if CRANNOG_TEST_HOST is "must", as on CI,
// because a skipped test has not passed.
package hosttest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requirement is a feature that a host may lack.
type Requirement struct {
	Name string
	Has  func() bool
	// RemoteTarget names the tests that run in a machine with this feature, and fail if it is
	// missing there. Only a feature with such tests may be missing on CI.
	RemoteTarget string
}

var (
	Root   = Requirement{Name: "root", Has: func() bool { return os.Geteuid() == 0 }}
	Python = Program("python3")
	Node   = Program("node")
	Bash   = Program("bash")
	Git    = Program("git")
	// Unified is cgroup version 2, as most hosts have it. The machine that tests/unified boots has
	// it too.
	Unified = Requirement{Name: "control groups of version 2 with controllers", Has: unified, RemoteTarget: "tests/unified"}
	// TUN is the ability to create network devices whose packets a program sends and receives.
	TUN = Requirement{Name: "/dev/net/tun that this user may open", Has: tun}
	// Loop is the ability to mount a file system that is in a file.
	Loop = Requirement{Name: "root, /dev/loop-control and mkfs.ext4 for volumes with a quota", Has: loop}
	// PerfEvents is the ability to count page faults and context switches.
	PerfEvents = Requirement{Name: "perf_event_open for software events of its own programs", Has: perfEvents}
)

func perfEvents() bool {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CONTEXT_SWITCHES,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Bits: unix.PerfBitDisabled | unix.PerfBitInherit,
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	return err == nil && unix.Close(fd) == nil
}

func tun() bool {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	return err == nil && f.Close() == nil
}

func loop() bool {
	_, err := os.Stat("/usr/sbin/mkfs.ext4")
	return err == nil && os.Geteuid() == 0 && unix.Access("/dev/loop-control", unix.R_OK|unix.W_OK) == nil
}

func unified() bool {
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "memory")
}

// Program returns the requirement of a program that sandboxes see too, so it must be below /usr.
func Program(name string) Requirement {
	return Requirement{Name: name + " in /usr/bin or /usr/local/bin", Has: func() bool {
		for _, dir := range []string{"/usr/bin/", "/usr/local/bin/"} {
			if _, err := exec.LookPath(dir + name); err == nil {
				return true
			}
		}
		return false
	}}
}

// Must reports whether a test fails, instead of being skipped, when the host lacks what the test
// needs.
func Must() bool { return os.Getenv("CRANNOG_TEST_HOST") == "must" }

// Full reports whether "make test-full" runs. Tests then also run parts that take too long for each
// change (listed in docs/internals/testing.md).
func Full() bool { return os.Getenv("CRANNOG_TEST_FULL") != "" }

// Need skips or fails the test if the host does not meet a requirement.
func Need(t testing.TB, requirements ...Requirement) {
	t.Helper()
	for _, r := range requirements {
		if r.Has() {
			continue
		}
		if r.RemoteTarget != "" {
			t.Skipf("this host has no %s: %s runs this test", r.Name, r.RemoteTarget)
		}
		if Must() {
			t.Fatalf("this host has no %s, and CRANNOG_TEST_HOST is must", r.Name)
		}
		t.Skipf("this host has no %s", r.Name)
	}
}
