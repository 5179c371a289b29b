package enginetest

import (
	"context"
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// identity prints what must differ between copies, one thing per line.
const identity = "uname -n; cat /etc/hostname; cat /etc/machine-id; cat /proc/sys/kernel/random/boot_id; head -c 8 /dev/urandom | od -An -tx1"

var copyRules = []rule{
	// P26
	{"copies/are-not-each-other", func(t *testing.T, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		dir := save(t, b)
		seen := map[string]string{}
		for _, one := range []*box{b, c.copyOf(t, b.e, dir), c.copyOf(t, b.e, dir)} {
			lines := strings.Split(strings.TrimSpace(one.shAs(t, "root", identity).stdout), "\n")
			if len(lines) != 5 || lines[0] != lines[1] {
				t.Fatalf("%s says %q", one.id, lines)
			}
			for i, line := range lines[1:] {
				if other, taken := seen[line]; taken || len(line) < 3 {
					t.Errorf("line %d of %s is that of %s: %q", i+1, one.id, other, line)
				}
				seen[line] = one.id
			}
		}
		// The control: what is not to change does not.
		b.want(t, "cat /proc/sys/kernel/random/boot_id | wc -c", "37")
		first := b.shAs(t, "root", "cat /etc/machine-id /proc/sys/kernel/random/boot_id").stdout
		save(t, b)
		if again := b.shAs(t, "root", "cat /etc/machine-id /proc/sys/kernel/random/boot_id").stdout; again != first {
			t.Errorf("a saved sandbox became another: %q, before %q", again, first)
		}
	}},
	{"copies/only-the-guest-may-become-another", func(t *testing.T, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		for _, user := range []string{"user", "root"} {
			r := b.shAs(t, user, `python3 -c '
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(1999, b"other", 5, 1), ctypes.get_errno())'; uname -n`)
			if r.stdout != "-1 1\nbox\n" { // EPERM
				t.Errorf("%s: %q", user, r.stdout)
			}
		}
	}},
	{"copies/know-the-time", knowTheTime},
	{"copies/copying-cuts-no-stream-of-the-source", func(t *testing.T, c *Config) {
		// A program that waits for its input keeps waiting in the source, and
		// the copy's guest serves new streams at once.
		b := c.start(t, c.Open(t, t.TempDir()))
		ended := make(chan error, 1)
		go func() {
			_, err := b.exec(t.Context(), "user", "/bin/sh", "-c", ": > begun; while ! [ -e enough ]; do sleep 0.1; done; echo done")
			ended <- err
		}()
		hosttest.Eventually(t, "it runs", func() bool { return b.sh(t, "test -e begun").code == 0 })
		other := c.copyOf(t, b.e, save(t, b))
		other.want(t, "echo well", "well")
		b.sh(t, ": > enough")
		if err := <-ended; err != nil {
			t.Errorf("a stream of the source was cut: %v", err)
		}
	}},
	{"copies/streams-of-the-source-go-on", func(t *testing.T, c *Config) {
		// What comes in while a state is written is not lost, and not late.
		b := c.start(t, c.Open(t, t.TempDir()))
		saved := make(chan struct{})
		go func() {
			defer close(saved)
			for range 15 {
				if err := saver(t, b.e).Checkpoint(t.Context(), b.id, t.TempDir()); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		for n := 0; ; n++ {
			ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
			_, err := b.exec(ctx, "user", "/bin/true")
			cancel()
			if err != nil {
				t.Fatalf("command %d: %v", n, err)
			}
			select {
			case <-saved:
				return
			default:
			}
		}
	}},
	{"copies/spare-kernels-are-used-and-dropped", func(t *testing.T, c *Config) {
		b, gone := c.counted(t)
		saved := save(t, b)
		for range 3 {
			warm(t, c, b.e, 2)
			other := c.copyOf(t, b.e, saved)
			other.want(t, "uname -n", other.id)
			other.client.CloseIdleConnections()
			if err := b.e.Remove(t.Context(), other.id); err != nil {
				t.Fatal(err)
			}
		}
		warm(t, c, b.e, 0)
		gone()
	}},
	{"copies/a-spare-kernel-takes-the-name-of-a-new-box", func(t *testing.T, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		b.want(t, "uname -n; cat /etc/hostname", "box\nbox")
		warm(t, c, e, 1)
		if err := saver(t, e).Replace(t.Context(), c.spec(b.id), ""); err != nil {
			t.Fatal(err)
		}
		attach(t, e, b.id).want(t, "uname -n; cat /etc/hostname", "box\nbox")
	}},
	{"copies/spare-kernels-of-two-kinds", func(t *testing.T, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		saved := save(t, b)
		other := c.spec("any")
		other.Limits.MemoryBytes = 300 << 20
		both := []engine.Spare{{Spec: other, Count: 1}, {Spec: c.spec("any"), Count: 1}}
		warmAll(t, b.e, both, 2)
		copied := c.copyOf(t, b.e, saved)
		copied.want(t, "uname -n", copied.id)
		hosttest.Eventually(t, "this kind's is made again", func() bool { return counter(t, b.e).Spares() == 2 })
		// The other kind's was there all the time: nothing is made this fast.
		b.e.(engine.Warmer).Warm(both[:1])
		if n := counter(t, b.e).Spares(); n != 1 {
			t.Errorf("%d spare kernels are left of the other kind", n)
		}
		warmAll(t, b.e, nil, 0)
	}},
	{"copies/a-full-disk-costs-nothing", func(t *testing.T, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		b := c.start(t, e)
		b.sh(t, "head -c 20m /dev/urandom > f")
		full := t.TempDir()
		if err := unix.Mount("tmpfs", full, "tmpfs", 0, "size=4m"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(full, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		err := saver(t, e).Checkpoint(t.Context(), b.id, full)
		if fault.KindOf(err) != fault.Exhausted {
			t.Errorf("got %v, want no room", err)
		}
		b.want(t, "stat -c %s f", "20971520")
		c.copyOf(t, e, save(t, b)).want(t, "stat -c %s f", "20971520")
	}},
	{"copies/cycles-leave-nothing", func(t *testing.T, c *Config) {
		b, gone := c.counted(t)
		saved := save(t, b)
		turn := func() {
			other := c.copyOf(t, b.e, saved)
			other.want(t, "echo x", "x")
			other.client.CloseIdleConnections()
			if err := b.e.Remove(t.Context(), other.id); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 * c.Cycles {
			turn()
		}
		gone()
	}},
}

// warm asks for spare kernels and waits until they are there.
func warm(t testing.TB, c *Config, e engine.Engine, n int) {
	t.Helper()
	like := c.spec("any")
	like.Hostname = "" // it does not matter
	warmAll(t, e, []engine.Spare{{Spec: like, Count: n}}, n)
}

func warmAll(t testing.TB, e engine.Engine, wanted []engine.Spare, n int) {
	t.Helper()
	w, ok := e.(engine.Warmer)
	if !ok {
		t.Fatal("the engine has no spare kernels")
	}
	w.Warm(wanted)
	// They outlive the engine's user unless it is closed.
	if closer, ok := e.(io.Closer); ok {
		t.Cleanup(func() {
			if err := closer.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	hosttest.Eventually(t, "spare kernels are made", func() bool { return counter(t, e).Spares() == n })
}

// counter is an engine that counts its spare kernels.
func counter(t testing.TB, e engine.Engine) interface{ Spares() int } {
	t.Helper()
	c, ok := e.(interface{ Spares() int })
	if !ok {
		t.Fatal("the engine does not count its spare kernels")
	}
	return c
}
