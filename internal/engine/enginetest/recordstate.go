package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// wantBegan checks that the first event since the last call is the start of a new kernel.
func (v *eventFile) wantBegan(t testing.TB) {
	t.Helper()
	if all := v.readNew(t); len(all) == 0 || all[0].Kind != events.Began {
		t.Errorf("the new events are %+v, want the start of a kernel first", all)
	}
}

// wantProgram runs a program with a unique argument, and finds its event.
func (v *eventFile) wantProgram(t testing.TB, b *testSandbox, word string) events.Event {
	t.Helper()
	b.want(t, "/bin/true "+word+"; echo", "")
	all := filter(v.surveyNew(t, b), events.Exec, hasArgument(word))
	if len(all) != 1 {
		t.Fatalf("the program with the argument %s was recorded %d times, want once", word, len(all))
	}
	return all[0]
}

// wantNoGaps checks that no event is missing or duplicated.
func (v *eventFile) wantNoGaps(t testing.TB) {
	t.Helper()
	for i, e := range v.read {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has number %d", i+1, e.Seq)
		}
	}
}

// countHolders counts the other processes that have the file open.
func (v *eventFile) countHolders(t testing.TB) (others int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		for _, entry := range entries {
			to, _ := os.Readlink(filepath.Join(dir, entry.Name()))
			if to == v.f.Name() && dir != fmt.Sprintf("/proc/%d/fd", os.Getpid()) {
				others++
				break
			}
		}
	}
	return others
}

var recordStateRules = []rule{
	// P32 of docs/reference/promises.md
	{"record/restored-sandboxes-are-watched-from-the-start", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		b.sh(t, `echo old > old; setsid sh -c 'exec 3>>held; while :; do [ -e go ] && echo line >&3 && rm go; sleep 0.05; done' >/dev/null 2>&1 </dev/null & echo $! > pid; while [ ! -e held ]; do sleep 0.05; done`)
		loop := number(t, b.sh(t, "cat pid").stdout)
		saved := save(t, b)
		if got := v.readNew(t); len(filter(got, events.File, func(e events.Event) bool { return e.Path == "/home/user/old" })) != 1 {
			t.Error("a change before the checkpoint was not recorded once")
		}
		for range 2 {
			w := newEvents(t)
			other := c.copyOf(t, b.e, saved, func(s *engine.Spec) { s.Events = w.f })
			w.wantBegan(t)
			w.wantProgram(t, other, "restored")
			w.wantChanges(t, other, "touch go; while [ -e go ]; do sleep 0.05; done; echo new > new", "changed /home/user/held", "created /home/user/new")
			w.wantChanges(t, other, "echo more >> old; rm new", "changed /home/user/old", "removed /home/user/new")
			if all := filter(w.read, events.Exec, func(e events.Event) bool { return filepath.Base(e.Program) == "sleep" && e.Command == loop }); len(all) == 0 {
				t.Error("programs of a restored sandbox belong to no command")
			}
			w.wantNoGaps(t)
		}
		v.wantProgram(t, b, "source")
		v.wantNoGaps(t)
	}},
	// P32 of docs/reference/promises.md
	{"record/copies-and-replaced-sandboxes-are-watched", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		b.sh(t, "echo old > old")
		saved := save(t, b)
		if got := filter(v.readNew(t), events.File, func(e events.Event) bool { return e.Path == "/home/user/old" }); len(got) != 1 {
			t.Errorf("the events of the change before the save are %+v, want one", got)
		}
		w := newEvents(t)
		other := c.copyOf(t, b.e, saved, func(s *engine.Spec) { s.Events = w.f })
		w.wantBegan(t)
		w.wantProgram(t, other, "copied")
		w.wantChanges(t, other, "echo more >> old; echo new > new", "changed /home/user/old", "created /home/user/new")
		w.wantNoGaps(t)
		spec := c.spec(b.id)
		spec.Events, spec.Boot.Config = v.f, renewed(b.id, "box", guest.RolledBack)
		if err := saver(b.e).Replace(t.Context(), spec, saved); err != nil {
			t.Fatal(err)
		}
		v.wantBegan(t)
		v.wantProgram(t, attach(t, b.e, b.id), "replaced")
		v.wantNoGaps(t)
	}},
	// P32 of docs/reference/promises.md
	{"record/continues-with-zombies", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		// A child that has ended, and a program whose first thread has ended.
		b.sh(t, `setsid sh -c 'sleep 0 & exec sleep 1000' >/dev/null 2>&1 </dev/null &
setsid python3 -c '
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).pthread_exit(None)' >/dev/null 2>&1 </dev/null &`)
		const countZombies = "grep -hc '^State:.Z' /proc/[0-9]*/status | grep -c 1"
		hosttest.Eventually(t, "both are zombies", func() bool { return strings.TrimSpace(b.sh(t, countZombies).stdout) == "2" })
		saved := save(t, b)
		w := newEvents(t)
		other := c.copyOf(t, b.e, saved, func(s *engine.Spec) { s.Events = w.f })
		other.want(t, countZombies, "2")
		w.wantProgram(t, other, "copied")
		w.wantChanges(t, other, "echo new > new", "created /home/user/new")
		spec := c.spec(b.id)
		spec.Events, spec.Boot.Config = v.f, renewed(b.id, "box", guest.RolledBack)
		if err := saver(b.e).Replace(t.Context(), spec, saved); err != nil {
			t.Fatal(err)
		}
		replaced := attach(t, b.e, b.id)
		replaced.want(t, countZombies, "2")
		v.wantProgram(t, replaced, "replaced")
	}},
	// P32 of docs/reference/promises.md
	{"record/replaced-sandboxes-continue-the-same-file", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		saved := save(t, b)
		broken := t.TempDir()
		if err := os.CopyFS(broken, os.DirFS(saved)); err != nil {
			t.Fatal(err)
		}
		damage(t, broken, smallParts(b.e)[0])
		spec := c.spec(b.id)
		spec.Events, spec.Boot.Config = v.f, renewed(b.id, "box", guest.RolledBack)
		b.sh(t, "echo a > a; setsid sleep 1000 >/dev/null 2>&1 </dev/null &")
		if err := saver(b.e).Replace(t.Context(), spec, broken); err == nil {
			t.Fatal("a sandbox was replaced from a damaged state")
		}
		v.wantProgram(t, b, "failed")
		v.wantChanges(t, b, "echo a > a; echo b > b", "created /home/user/b")
		if err := saver(b.e).Replace(t.Context(), spec, saved); err != nil {
			t.Fatal(err)
		}
		v.wantBegan(t)
		replaced := attach(t, b.e, b.id)
		v.wantProgram(t, replaced, "replaced")
		v.wantChanges(t, replaced, "echo b > b", "created /home/user/b")
		v.wantNoGaps(t)
	}},
	// P32 of docs/reference/promises.md
	{"record/outlives-the-process-that-started-it", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		b, v := c.startObserved(t, c.Open(t, dir))
		v.readNew(t)
		// Another process with the same state directory takes over. The descriptor of the first
		// process is closed, as at its end.
		if err := v.f.Close(); err != nil {
			t.Fatal(err)
		}
		later := attach(t, c.Open(t, dir), b.id)
		later.want(t, "/bin/true later; echo x > x; cat x", "x")
		f, err := os.Open(v.f.Name())
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		v.f, v.r = f, events.NewReader(f, v.r.Offset(), uint64(len(v.read)))
		got := v.surveyNew(t, later)
		if len(filter(got, events.Exec, hasArgument("later"))) != 1 || len(filter(got, events.File, anyEvent)) == 0 {
			t.Errorf("the events after a restart are %+v, want the program and a file", got)
		}
		v.wantNoGaps(t)
	}},
	// P32 of docs/reference/promises.md
	{"record/removal-leaves-no-descriptor", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b, v := c.startObserved(t, e)
		b.want(t, "echo x", "x")
		if v.countHolders(t) == 0 {
			t.Error("control: no process has the file of a running sandbox open")
		}
		if err := e.Remove(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
		if n := v.countHolders(t); n != 0 {
			t.Errorf("%d processes still have the file open", n)
		}
	}},
	// P32 of docs/reference/promises.md
	{"record/programs-cannot-stop-it", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		v.readNew(t)
		// Attack: an argument with line breaks must not become a separate line.
		b.sh(t, `/bin/true 'forged
{"seq":9,"time":"2026-01-01T00:00:00Z","kind":"exit","pid":9}
'; printf '{"seq":10}\n' > /proc/self/fd/1`)
		b.shAs(t, "root", `mount -t tmpfs x /home; umount /proc /; kill -STOP 1; /bin/true stopped; kill -CONT 1; kill -USR1 1; true`)
		if n := len(filter(v.surveyNew(t, b), events.Exec, hasArgument("stopped"))); n != 1 {
			t.Errorf("a program that ran while the guest was stopped was recorded %d times, want once", n)
		}
		v.wantProgram(t, b, "still")
		ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
		defer cancel()
		_, _ = b.exec(ctx, "root", "/bin/sh", "-c", "echo last > /home/user/last; /bin/true evidence; kill -9 -1; kill -9 1")
		hosttest.Eventually(t, "the last actions are recorded", func() bool {
			v.readNew(t)
			return len(filter(v.read, events.Exec, hasArgument("evidence"))) == 1 &&
				len(filter(v.read, events.File, func(e events.Event) bool { return e.Path == "/home/user/last" })) == 1
		})
		v.wantNoGaps(t)
	}},
	// P32 of docs/reference/promises.md
	{"record/the-end-of-the-guest-loses-nothing", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		const script = `import os
for i in range(300):
    open("/home/user/%d" % i, "w").write("x" * i)
os.kill(1, 15); os.kill(1, 9)
`
		ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
		defer cancel()
		_, _ = b.exec(ctx, "root", "/usr/bin/python3", "-c", script)
		hosttest.Eventually(t, "all files are recorded", func() bool {
			v.readNew(t)
			return len(filter(v.read, events.File, func(e events.Event) bool {
				return e.Op == events.Created && strings.HasPrefix(e.Path, "/home/user/")
			})) == 300
		})
	}},
	// P32 of docs/reference/promises.md
	{"record/a-race-does-not-hide-a-name", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		// Attack: one thread changes the arguments of the calls of others, and the directories of
		// the paths, during the calls.
		r := b.sh(t, `mkdir r; cd r; mkdir a b; cat > ../race.py <<'X'
import ctypes, os, random, threading, time
libc = ctypes.CDLL(None)
names = [b"a/0", b"b/0", b"a/1", b"b/1", b"a", b"b", b"c", b"c/0", b"d"]
buf = [ctypes.create_string_buffer(b"a/0", 16) for _ in range(2)]
end = time.time() + 4
def flip():
    while time.time() < end:
        for b in buf:
            b.value = random.choice(names)
def act():
    while time.time() < end:
        n = random.randrange(7)
        x, y = buf
        if n == 0: libc.mkdir(x, 0o755)
        if n == 1: libc.rename(x, y)
        if n == 2: libc.unlink(x)
        if n == 3: libc.symlink(b"nowhere", x)
        if n == 4: libc.link(x, y)
        if n == 5: libc.rmdir(x)
        if n == 6:
            f = libc.open(x, 0o102, 0o644)
            if f >= 0:
                libc.write(f, y, 3); libc.close(f)
threads = [threading.Thread(target=f) for f in (flip, act, act)]
for t in threads: t.start()
for t in threads: t.join()
X
python3 ../race.py; cd; find r -mindepth 1 | sort`)
		recorded := map[string]bool{}
		v.surveyNew(t, b)
		for _, e := range filter(v.read, events.File, func(e events.Event) bool { return strings.HasPrefix(e.Path, "/home/user/r/") }) {
			if e.Op == events.Removed {
				delete(recorded, e.Path)
			} else {
				recorded[e.Path] = true
			}
		}
		var got []string
		for path := range recorded {
			got = append(got, strings.TrimPrefix(path, "/home/user/"))
		}
		slices.Sort(got)
		if want := strings.Fields(r.stdout); r.code != 0 || !slices.Equal(got, want) {
			t.Errorf("according to the events the files are\n%q\nwant\n%q (%s)", got, want, r.stderr)
		}
	}},
}
