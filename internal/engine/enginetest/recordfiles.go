package enginetest

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// newChanges returns the file events of a sandbox since the last call, by path.
func (v *eventFile) newChanges(t testing.TB, b *testSandbox) map[string]events.Event {
	t.Helper()
	out := map[string]events.Event{}
	for _, e := range filter(v.surveyNew(t, b), events.File, anyEvent) {
		if _, twice := out[e.Path]; twice && e.Unhashed == "" {
			t.Logf("%s has more than one event", e.Path)
		}
		out[e.Path] = e
	}
	return out
}

// wantChanges runs a shell command and compares the file events with descriptions such as "created
// /home/user/a".
func (v *eventFile) wantChanges(t testing.TB, b *testSandbox, line string, want ...string) map[string]events.Event {
	t.Helper()
	v.newChanges(t, b)
	if r := b.sh(t, line); r.code != 0 {
		t.Fatalf("the command %s fails: %+v", line, r)
	}
	return v.compare(t, b, line, want...)
}

// compare compares the new file events with descriptions.
func (v *eventFile) compare(t testing.TB, b *testSandbox, line string, want ...string) map[string]events.Event {
	t.Helper()
	all := v.newChanges(t, b)
	var got []string
	for path, e := range all {
		got = append(got, fmt.Sprintf("%s %s", e.Op, path))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", line, got, want)
	}
	return all
}

// sum returns the SHA-256 checksum of a text.
func sum(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

var recordFileRules = []rule{
	// P32 of docs/reference/promises.md
	{"record/each-file-has-its-size-and-checksum", func(t testing.TB, c *Config) {
		eng := c.Open(t, t.TempDir())
		b, v := c.startObserved(t, eng)
		namesCommand := len(eng.Info().Unseen) == 0
		v.newChanges(t, b)
		const n = 2000
		b.sh(t, fmt.Sprintf(`mkdir d; i=0; while [ $i -lt %d ]; do echo "file $i" > d/$i; i=$((i+1)); done`, n))
		got := v.newChanges(t, b)
		if e := got["/home/user/d"]; e.Op != events.Created || e.Type != "dir" {
			t.Errorf("the event of the directory is %+v, want a created directory", e)
		}
		for i := range n {
			text := fmt.Sprintf("file %d\n", i)
			e := got[fmt.Sprintf("/home/user/d/%d", i)]
			if e.Op != events.Created || e.Type != "file" || e.Size != int64(len(text)) || e.Sum != sum(text) || e.UID != 1000 || e.Command == 0 && namesCommand {
				t.Fatalf("the event of file %d is %+v", i, e)
			}
		}
		if len(got) != n+1 {
			t.Errorf("got %d events, want %d", len(got), n+1)
		}
	}},
	// P32 of docs/reference/promises.md
	{"record/only-changes-are-recorded", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		v.wantChanges(t, b, "echo a > a; mkdir e; echo b > e/b; echo l > l; ln -s a s",
			"created /home/user/a", "created /home/user/e", "created /home/user/e/b", "created /home/user/l", "created /home/user/s")
		v.wantChanges(t, b, "echo x > gone; rm gone; mkdir f; rmdir f; cat a e/b /etc/passwd; ls -la; : >> a; echo a > a")
		v.wantChanges(t, b, "mv a moved", "removed /home/user/a", "created /home/user/moved")
		v.wantChanges(t, b, "chmod 600 moved", "changed /home/user/moved")
		v.wantChanges(t, b, "chmod 600 moved; truncate -s 1 moved", "changed /home/user/moved")
		v.wantChanges(t, b, "mv e g", "removed /home/user/e", "removed /home/user/e/b", "created /home/user/g", "created /home/user/g/b")
		v.wantChanges(t, b, "rm -r g s", "removed /home/user/g", "removed /home/user/g/b", "removed /home/user/s")
		v.wantChanges(t, b, "rm moved; echo new > moved", "changed /home/user/moved")
		v.wantChanges(t, b, "ln l hard; mkfifo p", "created /home/user/hard", "created /home/user/p")
		v.wantChanges(t, b, "echo more >> hard", "changed /home/user/hard", "changed /home/user/l")
		v.wantChanges(t, b, "echo t > /tmp/t; echo w > /workspace/w; echo s > /dev/shm/s; echo n > /dev/null", "created /tmp/t", "created /workspace/w")
	}},
	// P32 of docs/reference/promises.md
	{"record/names-are-real-paths", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b, v := c.startObserved(t, e)
		v.wantChanges(t, b, "mkdir -p real/deep; ln -s real/deep way; ln -s way/f to", "created /home/user/real", "created /home/user/real/deep", "created /home/user/way", "created /home/user/to")
		v.wantChanges(t, b, "echo x > to; cd way; echo y > ../../x; mkdir ./m; cd /; echo z > proc/self/cwd/tmp/z",
			"created /home/user/real/deep/f", "created /home/user/x", "created /home/user/real/deep/m", "created /tmp/z")
		v.wantChanges(t, b, `python3 -c '
import os
d = os.open("way", os.O_RDONLY)
f = os.open("g", os.O_WRONLY | os.O_CREAT, dir_fd=d)
os.write(f, b"g")
os.mkdir("h", dir_fd=d)
os.unlink("f", dir_fd=d)
r = os.open("/proc/self/fd/%d" % os.open("real/deep/m", os.O_RDONLY), os.O_RDONLY)
os.close(os.open("i", os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=r))
'`, "created /home/user/real/deep/g", "created /home/user/real/deep/h", "removed /home/user/real/deep/f", "created /home/user/real/deep/m/i")
		// A program's own mount namespace or root directory hides nothing.
		if r := b.sh(t, "unshare -Urm true"); r.code == 0 {
			v.wantChanges(t, b, `unshare -Urm sh -c 'mkdir -p /tmp/o; mount --bind /home/user/real /tmp/o; echo u > /tmp/o/u; echo v > v'`,
				"created /tmp/o", "created /home/user/real/u", "created /home/user/v")
		} else {
			t.Logf("no namespaces inside: %s", r.stderr)
		}
		r := b.shAs(t, "root", "mkdir /tmp/top; cp -a /home/user/real /tmp/top/; python3 -c '\nimport os\nos.chroot(\"/tmp/top\"); os.chdir(\"/\"); open(\"/real/c\", \"w\").write(\"c\")'")
		if got := v.newChanges(t, b); r.code != 0 && sharesKernel(e.Info()) {
			t.Logf("no chroot inside: %s", r.stderr)
		} else if r.code != 0 || got["/tmp/top/real/c"].Op != events.Created {
			t.Errorf("a file created after chroot is not recorded with its real path: %+v: %v", r, got)
		}
	}},
	// P32 of docs/reference/promises.md
	{"record/open-files-are-checked-again", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		v.wantChanges(t, b, `cat > write.py <<'X'
import mmap, os, sys, time
f = open("held", "w+b", buffering=0); f.write(b"1" * 4096)
m = mmap.mmap(f.fileno(), 4096)
g = open("log", "ab", buffering=0)
print("open", flush=True)
for line in open("commands"):
    if line == "map\n": m[0] = ord("2")
    if line == "close\n": f.close()
    if line == "log\n": g.write(b"line\n")
    open("done", "w").write(line)
X
mkfifo commands; setsid sleep 1000 > commands 2>&1 </dev/null & setsid python3 write.py > out 2>&1 </dev/null & while ! grep -q open out; do sleep 0.05; done; : > done`,
			"created /home/user/write.py", "created /home/user/commands", "created /home/user/held", "created /home/user/log", "created /home/user/out", "created /home/user/done")
		command := func(word string) string {
			return fmt.Sprintf("echo %s > commands; while ! grep -q %s done; do sleep 0.05; done", word, word)
		}
		v.wantChanges(t, b, command("map"), "changed /home/user/held", "changed /home/user/done")
		v.wantChanges(t, b, command("log"), "changed /home/user/log", "changed /home/user/done")
		v.wantChanges(t, b, command("close"), "changed /home/user/done")
		got := v.wantChanges(t, b, "mv held elsewhere; "+command("log"), "removed /home/user/held", "created /home/user/elsewhere", "changed /home/user/log", "changed /home/user/done")
		if want := sum("2" + strings.Repeat("1", 4095)); got["/home/user/elsewhere"].Sum != want {
			t.Errorf("the event of the mapped file is %+v, want the checksum after the write", got["/home/user/elsewhere"])
		}
	}},
	// P32 of docs/reference/promises.md
	{"record/unnamed-files-that-get-a-name", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		got := v.wantChanges(t, b, `cat > link.py <<'X'
import ctypes, os, sys
try:
    f = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o644)
except OSError:
    f = os.open("tmp", os.O_CREAT | os.O_RDWR, 0o644)
    os.link("tmp", "named"); os.unlink("tmp")
else:
    if ctypes.CDLL(None, use_errno=True).linkat(-100, b"/proc/self/fd/%d" % f, -100, b"named", 0x400):
        raise OSError(ctypes.get_errno())
os.write(f, b"content")
X
python3 link.py`, "created /home/user/link.py", "created /home/user/named")
		if e := got["/home/user/named"]; e.Sum != sum("content") {
			t.Errorf("the event of the named file is %+v, want the checksum of its content", e)
		}
	}},
	// P32 of docs/reference/promises.md
	{"record/changes-are-recorded-when-a-command-ends", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		b.want(t, "echo x > x; cat x", "x")
		hosttest.Eventually(t, "the file is recorded without a survey", func() bool {
			v.readNew(t)
			return len(filter(v.read, events.File, func(e events.Event) bool { return e.Path == "/home/user/x" })) == 1
		})
	}},
}
