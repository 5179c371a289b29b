package abuse_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var signalAttacks = []attack{
	{name: "kill all processes", users: both, run: signalAllProcesses},
	{name: "kill the first process", users: both, run: killFirst},
	{name: "stop the first process", users: []string{"root"}, run: stopFirst},
	{name: "descriptors", users: both, options: limits(func(l *api.Limits) { l.MemoryBytes = 1 << 30 }), run: descriptors},
	{name: "clock", users: both, run: clock},
	{name: "inotify", users: both, run: inotify},
}

// signalAllProcesses kills every process that it may. kill -1 spares the first process, which is
// the guest.
func signalAllProcesses(t *testing.T, b *testSandbox) {
	b.sh(t, "sleep 600 > /dev/null 2>&1 &")
	res, err := b.exec(t, 20*time.Second, "kill -9 -1; sleep 1")
	t.Logf("the command that killed all processes: %v %+v", err, res)
	requireAnswer(t, b.Sandbox)
	if left := b.sh(t, "pgrep -xc sleep | cat"); left != "0" {
		t.Errorf("control: %s processes survived", left)
	}
}

// killFirst signals the guest. An ordinary user may not; root may end its own sandbox and no other.
func killFirst(t *testing.T, b *testSandbox) {
	res, _ := b.exec(t, 10*time.Second, "for s in TERM INT HUP QUIT USR1 SEGV ABRT KILL; do kill -$s 1; done; sleep 0.2; echo alive")
	if b.user == "root" {
		hosttest.EventuallyNoError(t, func() error {
			if info, err := b.Refresh(t.Context()); err != nil || info.State != "stopped" {
				return fmt.Errorf("the sandbox whose first process was killed is %s (%v)", info.State, err)
			}
			return nil
		})
		return
	}
	if !strings.Contains(res.Stderr, "ermitted") {
		t.Errorf("an ordinary user could signal the first process: %+v", res)
	}
	requireAnswer(t, b.Sandbox)
}

// stopFirst stops the guest, which enforces the time limits. The server must end the command all
// the same, and must be able to remove the sandbox.
func stopFirst(t *testing.T, b *testSandbox) {
	began := time.Now()
	res, err := b.exec(t, time.Second, "kill -STOP 1; sleep 600")
	if err == nil && res.Hit == api.HitTimeout {
		return // gVisor's kernel does not stop its first process
	}
	if !errors.Is(err, crannog.ErrTimeout) || crannog.Code(err) != "guest_silent" {
		t.Errorf("a command in a sandbox with a stopped guest: got %v, %+v, want guest_silent", err, res)
	}
	if took := time.Since(began); took >= commandLimit {
		t.Errorf("the command took %v, so only the sandbox's general limit ended it", took)
	}
}

// descriptors opens files until that fails, in one process and then in many. For files of the
// host's image, the engine holds descriptors outside too.
func descriptors(t *testing.T, b *testSandbox) {
	n := b.number(t, 30*time.Second, `
import os, subprocess
held = []
for d, _, names in os.walk("/usr/lib"):
    for name in names:
        try:
            held.append(os.open(os.path.join(d, name), os.O_RDONLY | os.O_NOFOLLOW))
        except OSError as e:
            if e.errno == 24:
                print(len(held), flush=True)
                os._exit(0)
print(-1)
`)
	if n < 100 {
		t.Errorf("control: only %d files could be opened", n)
	}
	res, err := b.python(t, 10*time.Second, `
import os, time
for i in range(12):
    if os.fork() == 0:
        held = []
        for d, _, names in os.walk("/usr/lib"):
            for name in names:
                try:
                    held.append(os.open(os.path.join(d, name), os.O_RDONLY | os.O_NOFOLLOW))
                except OSError as e:
                    if e.errno == 24:
                        time.sleep(60)
time.sleep(4)
os.killpg(0, 9)
`)
	t.Logf("the attack with many processes: %v, exit code %d", err, res.ExitCode)
	requireAnswer(t, b.Sandbox)
}

// clock tries to set the time with every system call for it.
func clock(t *testing.T, b *testSandbox) {
	before := time.Now()
	res, err := b.python(t, 30*time.Second, `
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
for clock in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC):
    try:
        time.clock_settime(clock, 10**9)
        print("set", clock)
    except (OSError, PermissionError):
        pass
buf = ctypes.create_string_buffer(512)
class timeval(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("us", ctypes.c_long)]
if libc.settimeofday(ctypes.byref(timeval(10**9, 0)), None) == 0:
    print("set by settimeofday")
ctypes.c_uint.from_buffer(buf).value = 0x8001  # offset, once
if libc.adjtimex(buf) >= 0:
    print("set by adjtimex")
print(time.time())
`)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("try to set the clock: %v %+v", err, res)
	}
	lines := strings.Fields(res.Stdout)
	if len(lines) != 1 {
		t.Errorf("the attack printed %q, want only the time: a system call set the clock", res.Stdout)
	}
	var insideTime float64
	if _, err := fmt.Sscan(lines[len(lines)-1], &insideTime); err != nil {
		t.Fatal(err)
	}
	if at := time.UnixMilli(int64(insideTime * 1000)); at.Before(before.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("the time inside is %v, outside %v", at, time.Now())
	}
	// The host's clock must advance like the monotonic clock. The host may adjust it a little at
	// the same time.
	if moved := time.Since(before.Round(0)) - time.Since(before); moved.Abs() > 30*time.Second {
		t.Errorf("the host's clock was moved by %v", moved)
	}
}

// inotify takes all the watches that it can get. The host must have watches left.
func inotify(t *testing.T, b *testSandbox) {
	res, err := b.python(t, 10*time.Second, `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
files = watches = 0
os.makedirs("/tmp/w", exist_ok=True)
while files < 4000:
    fd = libc.inotify_init1(0)
    if fd < 0:
        break
    files += 1
one = libc.inotify_init1(0) if files < 4000 else fd
for i in range(3000):
    path = b"/tmp/w/%d" % i
    os.mkdir(path)
    if libc.inotify_add_watch(fd if fd >= 0 else 3, path, 0xfff) < 0:
        break
    watches += 1
print(files, watches)
`)
	t.Logf("the attack on inotify: %v %+v", err, res)
	var descriptors []int
	for range 8 {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			t.Errorf("the host has no inotify instance left: %v", err)
			break
		}
		descriptors = append(descriptors, fd)
		if _, err := unix.InotifyAddWatch(fd, t.TempDir(), unix.IN_CREATE); err != nil {
			t.Errorf("the host has no inotify watch left: %v", err)
		}
	}
	for _, fd := range descriptors {
		unix.Close(fd)
	}
	requireAnswer(t, b.Sandbox)
}
