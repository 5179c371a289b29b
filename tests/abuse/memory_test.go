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

var memoryAttacks = []attack{
	{name: "memory", users: both, run: fillMemory},
	{name: "shared memory", users: both, run: fillSharedMemory},
	{name: "many files", users: ordinary, run: manyFiles},
	{name: "large listing", users: ordinary, options: limits(func(l *api.Limits) { l.MemoryBytes, l.CPUMillis = 1<<30, 2000 }), run: largeListing},
}

// fillMemory maps memory and touches every page of it.
func fillMemory(t *testing.T, b *testSandbox) {
	const touch = "import mmap\nm = mmap.mmap(-1, %d << 20)\nfor i in range(0, len(m), 4096): m[i] = 1\nprint('held')"
	if res, err := b.python(t, 20*time.Second, fmt.Sprintf(touch, 64)); err != nil || res.Stdout != "held\n" {
		t.Errorf("control: %v %+v", err, res)
	}
	res, err := b.python(t, 20*time.Second, fmt.Sprintf(touch, 1024))
	if err != nil || res.Hit != api.HitOOM || res.ExitCode == 0 {
		t.Errorf("use more memory than the limit: got %v, %+v, want an out-of-memory error", err, res)
	}
	requireEndReason(t, b, "oom")
}

// requireEndReason waits until the server shows the sandbox as stopped for a reason.
func requireEndReason(t *testing.T, b *testSandbox, reason string) {
	t.Helper()
	hosttest.EventuallyNoError(t, func() error {
		info, err := b.Refresh(t.Context())
		if err != nil {
			return err
		}
		if info.State != "stopped" || info.Reason != reason {
			return fmt.Errorf("the sandbox is %s (%s), not stopped (%s)", info.State, info.Reason, reason)
		}
		return nil
	})
}

// endsAllowed reports whether an attack ended in one of the two allowed ways: the program got an
// error, or the sandbox ran out of memory.
func endsAllowed(res api.ExecResult, err error, refusal string) bool {
	if err != nil {
		return errors.Is(err, crannog.ErrUnavailable)
	}
	return res.Hit == api.HitOOM || res.ExitCode != 0 && strings.Contains(res.Stderr, refusal)
}

// fillSharedMemory writes to /dev/shm, which counts as memory and not as disk.
func fillSharedMemory(t *testing.T, b *testSandbox) {
	var before, after unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &before); err != nil {
		t.Fatal(err)
	}
	b.sh(t, "head -c 1048576 /dev/zero > /dev/shm/control")
	res, err := b.exec(t, 20*time.Second, "head -c 2G /dev/zero > /dev/shm/fill")
	if !endsAllowed(res, err, "No space") {
		t.Errorf("fill /dev/shm: got %v, %+v, want a full disk or an out-of-memory error", err, res)
	}
	if err := unix.Statfs("/dev/shm", &after); err != nil {
		t.Fatal(err)
	}
	if used := int64(before.Bfree-after.Bfree) * before.Bsize; before.Bfree > after.Bfree && used > 256<<20 {
		t.Errorf("the host's shared memory lost %d bytes", used)
	}
}

// manyFiles creates empty files until that fails, or until the time limit. Their memory counts for
// this sandbox and not for others.
func manyFiles(t *testing.T, b *testSandbox) {
	res, err := b.python(t, 8*time.Second, `
import os
os.makedirs("/tmp/many")
n = 0
while True:
    os.close(os.open("/tmp/many/%d" % n, os.O_CREAT | os.O_WRONLY))
    n += 1
`)
	if res.Hit != api.HitTimeout && !endsAllowed(res, err, "") {
		t.Errorf("create files without end: got %v, %+v, want an error, a timeout or an out-of-memory error", err, res)
	}
}

// listedFiles is the number of files that largeListing creates. Each costs about a millisecond on a
// busy machine.
const listedFiles = 20_000

// largeListing creates many files and lists them.
func largeListing(t *testing.T, b *testSandbox) {
	text := fmt.Sprintf(`
import os
os.makedirs("/tmp/listed")
for n in range(%d):
    os.mknod("/tmp/listed/f%%06d" %% n)
`, listedFiles)
	if res, err := b.python(t, 60*time.Second, text); err != nil || res.ExitCode != 0 {
		t.Fatalf("create the files to list: %v %+v", err, res)
	}
	began := time.Now()
	entries, err := b.FS().WithContext(t.Context()).ReadDir("tmp/listed")
	if err != nil || len(entries) != listedFiles {
		t.Errorf("list the directory: got %d entries, %v, want %d", len(entries), err, listedFiles)
	}
	t.Logf("listed %d entries in %v", len(entries), time.Since(began).Round(time.Millisecond))
	requireAnswer(t, b.Sandbox)
}
