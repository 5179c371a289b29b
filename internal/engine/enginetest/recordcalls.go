package enginetest

import "testing"

// unusualCalls makes file system calls with unusual arguments, and prints the results.
const unusualCalls = `cat > calls.py <<'X'
import ctypes, os, shutil, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    ctypes.set_errno(0)
    r = getattr(libc, name)(*args)
    print(name, [a.decode() if isinstance(a, bytes) else a for a in args], r if name != "open" else r >= 0, ctypes.get_errno())
    if name in ("open", "openat") and r > 2: libc.close(r)
os.umask(0o027)
paths = [b"", b"/", b".", b"..", b"f", b"f/", b"d", b"d/", b"d/.", b"d/..", b"d//g", b"none", b"none/x", b"none/", b"f/x", b"to", b"to/", b"dir", b"dir/", b"dir/g", b"loop", b"x" * 300, b"/proc/self/x", b"/dev/null", b"/usr/bin/true", b"/usr/none"]
def fresh():
    shutil.rmtree("w", True); os.mkdir("w"); os.chdir("w")
    open("f", "w").write("f"); os.mkdir("d"); open("d/g", "w").close(); os.mkdir("e")
    os.symlink("f", "to"); os.symlink("d", "dir"); os.symlink("loop", "loop")
home = os.getcwd()
def show():
    for dir, dirs, files in sorted(os.walk(".")):
        for name in sorted(dirs + files):
            path = os.path.join(dir, name); s = os.lstat(path)
            print(" ", path, oct(s.st_mode), 0 if os.path.isdir(path) else s.st_size, os.readlink(path) if os.path.islink(path) else "")
def each(f):
    for p in paths:
        fresh(); f(p); show(); os.chdir(home)
each(lambda p: call("mkdir", p, 0o1777))
each(lambda p: call("rmdir", p))
each(lambda p: call("unlink", p))
each(lambda p: call("unlinkat", -100, p, 0x200))
each(lambda p: call("unlinkat", -100, p, 1))
each(lambda p: call("symlink", b"target", p))
each(lambda p: call("symlink", p, b"made"))
each(lambda p: call("link", p, b"made"))
each(lambda p: call("link", b"f", p))
each(lambda p: call("linkat", -100, p, -100, b"made", 0x400))
each(lambda p: call("rename", p, b"made"))
each(lambda p: call("rename", b"f", p))
each(lambda p: call("rename", b"e", p))
each(lambda p: call("renameat2", -100, b"e", -100, p, 1))
each(lambda p: call("renameat2", -100, b"d", -100, p, 2))
each(lambda p: call("chmod", p, 0o705))
each(lambda p: call("truncate", p, 5))
each(lambda p: call("mknod", p, 0o010666, 0))
each(lambda p: call("mknod", p, 0o020666, 0x103))
for flags in (os.O_WRONLY, os.O_RDWR | os.O_CREAT, os.O_CREAT | os.O_EXCL | os.O_WRONLY, os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_NOFOLLOW, os.O_RDONLY | os.O_CREAT, os.O_RDWR | os.O_DIRECTORY, os.O_PATH):
    each(lambda p: call("open", p, flags, 0o4777))
fresh(); r = os.open("d", os.O_RDONLY); n = os.open("f", os.O_RDONLY)
for d in (r, n, 99, -1):
    for p in (b"g", b"../f", b"", b"/proc/none"):
        call("mkdirat", d, p, 0o755); call("openat", d, p, os.O_RDWR | os.O_CREAT, 0o600); call("unlinkat", d, p, 0); call("renameat", d, p, -100, b"moved")
        for resolve in (0, 8, 16, 4, 2, 1, 0x100):
            for how in (struct.pack("QQQ", os.O_RDWR, 0, resolve), struct.pack("QQQ", os.O_RDWR | os.O_CREAT, 0o600, resolve), struct.pack("QQQ", os.O_RDONLY, 0o600, resolve), struct.pack("QQQQ", os.O_RDWR, 0, resolve, 1)):
                ctypes.set_errno(0); f = libc.syscall(437, d, p, how, len(how)); print("openat2", d if d < 4 else "fd", p, resolve, f >= 0, ctypes.get_errno())
                if f > 2: libc.close(f)
call("fchmod", n, 0o640); call("fchmod", 99, 0o640); call("truncate", b"f", -1); call("linkat", n, b"", -100, b"empty", 0x1000); call("linkat", n, b"", -100, b"empty", 0)
libc.mkdir(None, 0); print(ctypes.get_errno())
show()
X
python3 calls.py 2>&1; python3 -c '
import os, resource, signal
signal.signal(signal.SIGXFSZ, lambda *a: print("too large"))
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
open("s", "w").close()
try: os.truncate("s", 100)
except OSError as e: print(e)
'; rm -rf w`

var recordCallRules = []rule{
	// P32: the engine's own implementations of system calls in an observed sandbox return the same
	// results as gVisor's.
	{"record/system-calls-return-the-same-results", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		observed, _ := c.startObserved(t, e)
		unobserved := c.start(t, e)
		got, want := observed.sh(t, unusualCalls), unobserved.sh(t, unusualCalls)
		if len(want.stdout) < 10_000 || want.code != 0 {
			t.Fatalf("control: the program prints too little: %+v", want)
		}
		if got.stdout != want.stdout {
			a, b := firstDifference(got.stdout, want.stdout)
			t.Errorf("an observed sandbox prints %q\nand another %q", a, b)
		}
	}},
}

// firstDifference returns the parts of two texts around their first difference.
func firstDifference(a, b string) (string, string) {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	from := max(0, i-300)
	return a[from:min(len(a), i+200)], b[from:min(len(b), i+200)]
}
