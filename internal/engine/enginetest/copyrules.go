package enginetest

import (
	"context"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// printIdentity prints the properties that must differ between copies, one per line.
const printIdentity = "uname -n; cat /etc/hostname; cat /etc/machine-id; cat /proc/sys/kernel/random/boot_id; head -c 8 /dev/urandom | od -An -tx1"

var copyRules = []rule{
	// P26 of docs/reference/promises.md
	{"copies/have-their-own-identity", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		dir := save(t, b)
		seen := map[string]string{}
		for _, one := range []*testSandbox{b, c.copyOf(t, b.e, dir), c.copyOf(t, b.e, dir)} {
			lines := strings.Split(strings.TrimSpace(one.shAs(t, "root", printIdentity).stdout), "\n")
			if len(lines) != 5 || lines[0] != lines[1] {
				t.Fatalf("%s prints the identity %q, want 5 lines with one host name", one.id, lines)
			}
			for i, line := range lines[1:] {
				if other, taken := seen[line]; taken || len(line) < 3 {
					t.Errorf("line %d of the identity of %s is equal to one of %s, or too short: %q", i+1, one.id, other, line)
				}
				seen[line] = one.id
			}
		}
		// The control: a checkpoint does not change the identity of the source.
		b.want(t, "cat /proc/sys/kernel/random/boot_id | wc -c", "37")
		first := b.shAs(t, "root", "cat /etc/machine-id /proc/sys/kernel/random/boot_id").stdout
		save(t, b)
		if again := b.shAs(t, "root", "cat /etc/machine-id /proc/sys/kernel/random/boot_id").stdout; again != first {
			t.Errorf("the save changed the identity of the sandbox: %q, before %q", again, first)
		}
	}},
	{"copies/only-the-guest-may-change-the-identity", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		for _, user := range []string{"user", "root"} {
			for _, line := range c.Forbidden {
				if r := b.shAs(t, user, line); r.code == 0 || r.stderr != "" {
					t.Errorf("%s as %s: %+v", line, user, r)
				}
			}
			if r := b.shAs(t, user, "uname -n"); r.stdout != "box\n" {
				t.Errorf("the host name is %q", r.stdout)
			}
		}
	}},
	{"copies/clocks-are-right", clocksAreRight},
	{"copies/streams-of-the-source-survive", func(t testing.TB, c *Config) {
		// A program that waits for its input continues to wait in the source, and the copy's guest
		// serves new streams at once.
		b := c.start(t, c.Open(t, t.TempDir()))
		ended := make(chan error, 1)
		go func() {
			_, err := b.exec(t.Context(), "user", "/bin/sh", "-c", ": > begun; while ! test -e enough; do sleep 0.1; done; echo done")
			ended <- err
		}()
		hosttest.Eventually(t, "the program runs", func() bool { return b.sh(t, "test -e begun").code == 0 })
		other := c.copyOf(t, b.e, save(t, b))
		other.want(t, "echo well", "well")
		b.sh(t, ": > enough")
		if err := <-ended; err != nil {
			t.Errorf("a stream of the source was cut: %v", err)
		}
	}},
	{"copies/requests-to-the-source-are-not-delayed", func(t testing.TB, c *Config) {
		// Requests that arrive while a state is written are neither lost nor late.
		b := c.start(t, c.Open(t, t.TempDir()))
		saved := make(chan struct{})
		go func() {
			defer close(saved)
			for range 15 {
				if err := saver(b.e).Checkpoint(t.Context(), b.id, t.TempDir()); err != nil {
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
	{"copies/a-full-disk-does-not-end-the-source", func(t testing.TB, c *Config) {
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
		err := saver(e).Checkpoint(t.Context(), b.id, full)
		if fault.KindOf(err) != fault.Exhausted {
			t.Errorf("checkpoint on a full disk: got %v, want no room", err)
		}
		b.want(t, "stat -c %s f", "20971520")
		c.copyOf(t, e, save(t, b)).want(t, "stat -c %s f", "20971520")
	}},
	{"copies/cycles-leave-nothing", func(t testing.TB, c *Config) {
		b, wantNothingLeft := c.counted(t)
		saved := save(t, b)
		createAndRemove := func() {
			other := c.copyOf(t, b.e, saved)
			other.want(t, "echo x", "x")
			other.client.CloseIdleConnections()
			if err := b.e.Remove(t.Context(), other.id); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 * c.Cycles {
			createAndRemove()
		}
		wantNothingLeft()
	}},
}
