package enginetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var limitRules = []rule{
	// P10 of docs/reference/promises.md
	{"limits/zero-is-the-default", func(t testing.TB, _ *Config) {
		if got := (engine.Limits{}).OrDefault(); got != engine.DefaultLimits {
			t.Errorf("OrDefault of empty limits returned %+v, want %+v", got, engine.DefaultLimits)
		}
		for _, v := range []int64{
			engine.DefaultLimits.MemoryBytes, engine.DefaultLimits.MilliCPU, engine.DefaultLimits.PIDs,
			engine.DefaultLimits.DiskBytes, engine.DefaultLimits.DiskInodes,
		} {
			if v <= 0 {
				t.Errorf("a default limit is %d, want more than 0", v)
			}
		}
	}},
	// P6 of docs/reference/promises.md
	{"limits/memory-ends-the-sandbox-with-a-reason", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		sibling := c.start(t, e)
		b := c.start(t, e, func(s *engine.Spec) { s.Limits.MemoryBytes = 192 << 20 })
		// The control: the same program in a sandbox with enough memory.
		sibling.want(t, "python3 -c 'x = b\"x\" * (300 << 20); print(len(x) >> 20)'", "300")
		ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(2*hosttest.Hang))
		defer cancel()
		r, err := b.exec(ctx, "user", "python3", "-c", "import time; x = b'x' * (300 << 20); time.sleep(20)")
		if err == nil && r.code == 0 {
			t.Error("300 MiB fit into 192 MiB")
		}
		if c.LosesOnlyPrograms {
			// The host's kernel kills only the program that uses too much.
			if err != nil {
				t.Error(err)
			}
			b.want(t, "echo well", "well")
			return
		}
		exit, err := e.Wait(ctx, b.id)
		if err != nil || exit.Reason != engine.ReasonOOM {
			t.Errorf("the sandbox ended with %+v, %v; want oom", exit, err)
		}
		sibling.want(t, "echo well", "well")
	}},
	{"limits/programs-see-the-memory-limit", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e, func(s *engine.Spec) { s.Limits.MemoryBytes = 512 << 20 })
		b.want(t, "grep MemTotal /proc/meminfo | tr -s ' ' | cut -d' ' -f2", "524288")
	}},
	{"limits/closed-connections-are-forgotten", func(t testing.TB, c *Config) {
		// The kernel remembers each closed connection for a while, which takes memory, and the
		// tests of a server make thousands of connections.
		b := c.start(t, c.Open(t, t.TempDir()))
		const checkClosed = `python3 -c '
import socket, time
def bound():
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", 9999))
        s.listen()
        return s
    except OSError:
        s.close()
server = bound()
client = socket.create_connection(("127.0.0.1", 9999))
server.accept()[0].close()
client.recv(1)
client.close()
server.close()
print("remembered" if not bound() else "gone")
end = time.monotonic() + 30
while not bound() and time.monotonic() < end: time.sleep(0.05)
print("forgotten" if time.monotonic() < end else "still there")'`
		b.want(t, checkClosed, "remembered\nforgotten")
		if _, ok := b.e.(engine.Checkpointer); ok {
			c.copyOf(t, b.e, save(t, b)).want(t, checkClosed, "remembered\nforgotten")
		}
	}},
	{"limits/disk-is-full-at-the-limit", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e, func(s *engine.Spec) { s.Limits.DiskBytes = 64 << 20 })
		b.want(t, "head -c 20m /dev/zero > a && stat -c %s a", "20971520")
		r := b.sh(t, "head -c 100m /dev/zero > b")
		if r.code == 0 || !strings.Contains(r.stderr, "No space left") {
			t.Errorf("100 MiB on a disk of 64 MiB: got %+v, want no space", r)
		}
		for _, dir := range []string{"/tmp", "/var/tmp", "/workspace"} {
			if r := b.sh(t, "head -c 1m /dev/zero > "+dir+"/c"); r.code == 0 {
				t.Errorf("%s has room beyond the limit", dir)
			}
		}
		b.want(t, "rm b && echo room > d && cat d", "room")
	}},
	{"limits/files-are-bounded", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		const maximum = 2000
		b := c.start(t, e, func(s *engine.Spec) { s.Limits.DiskInodes = maximum })
		// Each kind of file counts, at any place in the root.
		const fill = `python3 -c '
import errno, os, sys
dir, made = sys.argv[1], 0
os.mkdir(dir)
try:
    for i in range(int(sys.argv[2])):
        name = f"{dir}/{i}"
        (os.mkdir(name), os.symlink("x", name + "l"), os.close(os.open(name + "f", os.O_CREAT | os.O_WRONLY)), os.mkfifo(name + "p"))
        made += 4
    print("all", made)
except OSError as err:
    print(errno.errorcode[err.errno], made > 1400)' %s %d`
		b.want(t, fmt.Sprintf(fill, "/home/user/few", 100), "all 400")
		b.want(t, fmt.Sprintf(fill, "/tmp/many", 1000), "ENOSPC True")
		for _, dir := range []string{"/home/user", "/tmp", "/var/tmp", "/workspace"} {
			if r := b.sh(t, ": > "+dir+"/more"); r.code == 0 {
				t.Errorf("%s takes a file beyond the limit", dir)
			}
		}
		b.want(t, "rm -r few && : > again && echo room", "room")
		// A tmpfs has a separate limit.
		b.want(t, fmt.Sprintf(fill, "/dev/shm/many", 20000), "ENOSPC True")
	}},
	{"limits/processes-are-bounded", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e, func(s *engine.Spec) { s.Limits.PIDs = 64 })
		const forks = `python3 -c '
import os, time
n = 0
try:
    while n < %d:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        n += 1
    print("all", n, flush=True)
except BlockingIOError:
    print("bounded", n < 64, flush=True)
os.killpg(0, 9)'`
		if r := b.sh(t, fmt.Sprintf(forks, 20)); r.stdout != "all 20\n" {
			t.Fatalf("control: %+v", r)
		}
		if r := b.sh(t, fmt.Sprintf(forks, 200)); r.stdout != "bounded True\n" {
			t.Errorf("200 processes in a sandbox limited to 64: %+v", r)
		}
		hosttest.Eventually(t, "the sandbox works again", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(10*time.Second))
			defer cancel()
			r, err := b.exec(ctx, "user", "/bin/echo", "well")
			return err == nil && r.stdout == "well\n"
		})
	}},
	{"limits/cpu-is-bounded", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		meter := e.(engine.Meter)
		b := c.start(t, e, func(s *engine.Spec) { s.Limits.MilliCPU = 250 })
		before, err := meter.Usage(t.Context(), b.id)
		if err != nil {
			t.Fatal(err)
		}
		b.sh(t, "timeout 2 sh -c 'while :; do :; done'")
		after, err := meter.Usage(t.Context(), b.id)
		if err != nil {
			t.Fatal(err)
		}
		share := float64(after.CPUTime-before.CPUTime) / float64(after.At.Sub(before.At))
		if share > 0.40 {
			t.Errorf("the sandbox used %.2f processors, want at most 0.25 and some tolerance", share)
		}
	}},
	{"limits/limits-that-are-not-shown-are-read-back", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		info := e.Info()
		b := c.start(t, e, func(s *engine.Spec) { s.Limits.MilliCPU, s.Limits.MemoryBytes = 1000, 512<<20 })
		requested := engine.Limits{MilliCPU: 1000, MemoryBytes: 512 << 20}.OrDefault()
		var bounds engine.Limits
		meter, ok := e.(engine.Meter)
		if ok {
			var err error
			if bounds, err = meter.Bounds(t.Context(), b.id); err != nil {
				t.Fatal(err)
			}
			if _, err := meter.Bounds(t.Context(), "nosuchsandbox"); fault.KindOf(err) != fault.NotFound {
				t.Errorf("Bounds of an unknown sandbox: got %v, want not found", err)
			}
		}
		readBack := bounds.Fields()
		for limit, maximum := range requested.Fields() {
			if !slices.Contains(info.Enforces, limit) || slices.Contains(info.Shows, limit) {
				continue
			}
			if !ok || *readBack[limit] <= 0 || *readBack[limit] > *maximum {
				t.Errorf("the limit %s is %d, is not visible in the sandbox, and is read back as %d", limit, *maximum, *readBack[limit])
			}
		}
	}},
	{"limits/usage-grows", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		meter := e.(engine.Meter)
		b := c.start(t, e)
		before, err := meter.Usage(t.Context(), b.id)
		if err != nil {
			t.Fatal(err)
		}
		b.sh(t, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
		after, err := meter.Usage(t.Context(), b.id)
		if err != nil {
			t.Fatal(err)
		}
		if after.CPUTime <= before.CPUTime || after.MemoryBytes <= 0 {
			t.Errorf("the usage was %+v and is %+v, want more processor time and some memory", before, after)
		}
	}},
}
