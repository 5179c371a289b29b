package enginetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var memoryRules = []rule{
	// P25 of docs/reference/promises.md
	{"memory/is-the-same-byte-by-byte", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		b.sh(t, "cat > compare.py <<'X'\n"+comparePrograms+"X\nsetsid python3 compare.py >/dev/null 2>&1 &")
		wantUnchangedMemory(t, b)
		// Each copy is saved as soon as it runs, and writes while the next one is created.
		all := []*testSandbox{b}
		for range 2 {
			b = c.copyOf(t, b.e, save(t, b))
			all = append(all, b)
		}
		for _, sandbox := range slices.Backward(all) {
			wantUnchangedMemory(t, sandbox)
			if sandbox == all[0] { // the control: a changed bit is noticed
				sandbox.sh(t, "kill -USR1 $(cat result.pid)")
				hosttest.Eventually(t, "the damage is noticed", func() bool {
					return strings.Contains(sandbox.sh(t, "cat result.1").stdout, "page 7 of piece 3 differs from what was written")
				})
			}
			sandbox.sh(t, "pkill -9 -f compare.py")
		}
	}},
	// P25 of docs/reference/promises.md: a page of zeros takes no space in a state. A restore must
	// not mistake it for an unwritten page of a mapped file.
	{"memory/zeros-over-a-file-stay-zeros", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		b.sh(t, "cat > zeros.py <<'X'\n"+zerosProgram+"X\nsetsid python3 zeros.py >/dev/null 2>&1 &")
		hosttest.Eventually(t, "the program has written", func() bool { return b.sh(t, "test -e wrote").code == 0 })
		// No sandbox reads its mapping before all are created, because reading would allocate
		// pages.
		all := []*testSandbox{b}
		for range 2 {
			b = c.copyOf(t, b.e, save(t, b))
			all = append(all, b)
		}
		for _, sandbox := range all {
			sandbox.sh(t, "touch look")
			hosttest.Eventually(t, "the program reports its result", func() bool { return sandbox.sh(t, "test -e result").code == 0 })
			sandbox.want(t, "cat result", "zeros")
		}
	}},
}

// zerosProgram is a Python program that writes zeros over its private mapping of a file. Once the
// file look exists, it checks the mapping.
const zerosProgram = `
import mmap, os, time
SIZE = 64 * 4096
with open("ones", "wb") as f: f.write(b"\xff" * SIZE)
with open("ones", "r+b") as f: m = mmap.mmap(f.fileno(), SIZE, access=mmap.ACCESS_COPY)
m[:] = bytes(SIZE)
open("wrote", "w").close()
while not os.path.exists("look"): time.sleep(0.02)
with open("result.new", "w") as f: f.write("zeros" if m[:] == bytes(SIZE) else "something else")
os.rename("result.new", "result")
`

// comparePrograms is a Python program that repeatedly writes memory of each kind and compares it
// with what it has written. A child with a copy of its memory does the same, and a third process
// allocates and frees memory all the time. Each writes its result to a file.
const comparePrograms = `
import mmap, os, random, signal
PAGE = 4096
def area(pages, every, share): return mmap.mmap(-1, pages * PAGE, share | mmap.MAP_ANONYMOUS), range(0, pages, every)
constant = []
for n in range(20):
    constant.append(mmap.mmap(-1, 250 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    for p in range(250): constant[n][p*PAGE:(p+1)*PAGE] = (n << 16 | p).to_bytes(16) * 256
alone = [area(700, 1, mmap.MAP_PRIVATE), area(2000, 41, mmap.MAP_PRIVATE), area(500, 2, mmap.MAP_PRIVATE)]
shared = area(300, 1, mmap.MAP_SHARED)
def text(who, area, page, turn): return random.Random(who << 48 | area << 32 | page << 16 | turn).randbytes(PAGE)
def write(who, areas, turn):
    for n, (m, pages) in enumerate(areas):
        for p in pages: m[p*PAGE:(p+1)*PAGE] = text(who, n, p, turn)
def compare(who, areas, turn):
    for n, (m, pages) in enumerate(areas):
        touched = set(pages)
        for p in range(len(m) // PAGE):
            has = m[p*PAGE:(p+1)*PAGE]
            if has != (text(who, n, p, turn) if p in touched else bytes(PAGE)): return f"area {n} page {p} differs from what was written in turn {turn}"
def compare_constant():
    for n, m in enumerate(constant):
        for p in range(250):
            if m[p*PAGE:(p+1)*PAGE] != (n << 16 | p).to_bytes(16) * 256: return f"page {p} of piece {n} differs from what was written first"
def report(who, text):
    with open(f"result.{who}.new", "w") as f: f.write(text)
    os.rename(f"result.{who}.new", f"result.{who}")
def churn():
    for turn in range(1 << 16):
        m, bad = mmap.mmap(-1, 700 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), None
        for p in range(0, 700, 3): m[p*PAGE:(p+1)*PAGE] = (p + turn).to_bytes(16) * 256
        for p in range(700):
            if m[p*PAGE:(p+1)*PAGE] != (bytes(PAGE) if p % 3 else (p + turn).to_bytes(16) * 256): bad = f"new page {p} differs from what was written"
        m.close()
        report(3, bad or f"same {turn}")
        if bad: break
if os.fork() == 0:
    churn()
    os._exit(0)
write(1, alone + [shared], 0)
child = os.fork() == 0
who, areas, wrote = (2, alone, 1) if child else (1, alone + [shared], 1)
def damage(*_): constant[3][7*PAGE+99] ^= 1
if not child:
    report("pid", str(os.getpid()))
    signal.signal(signal.SIGUSR1, damage)
for turn in range(1 << 16):
    bad = compare_constant() or compare(wrote, areas, turn)
    report(who, bad or f"same {turn}")
    if bad: break
    wrote = who
    write(who, areas, turn + 1)
`

// wantUnchangedMemory waits until each program has compared all its memory twice more, and fails
// the test if one has found a difference.
func wantUnchangedMemory(t testing.TB, b *testSandbox) {
	t.Helper()
	turn := func(program int) int {
		output := strings.TrimSpace(b.sh(t, fmt.Sprintf("cat result.%d 2>/dev/null || echo same 0", program)).stdout)
		n, ok := strings.CutPrefix(output, "same ")
		if !ok {
			t.Fatalf("%s: program %d reports: %s", b.id, program, output)
		}
		return number(t, n)
	}
	for program := 1; program <= 3; program++ {
		before := turn(program)
		hosttest.Eventually(t, fmt.Sprintf("program %d compares", program), func() bool { return turn(program) >= before+2 })
	}
}
