package enginetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// lain returns how long a state is stored before it is restored. A clock may be wrong by slack,
// which is shorter, so that a clock that stopped during that time is noticed. A reading that takes
// longer than quick is too imprecise, and on a slow machine every reading takes longer.
func lain() time.Duration { return min(hosttest.Patience(5*time.Second), time.Minute) }

const slack = time.Second

func quick() time.Duration { return (lain() - slack) / 2 }

// tell is Python code that prints the time of day and the clocks that count from the start, in the
// order of a reading.
const tell = `" ".join(str(x) for x in (time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), open("/proc/uptime").read().split()[0]))`

var clockNames = [...]string{"wall clock", "monotonic clock", "boot clock", "uptime"}

// reading holds the values of a sandbox's clocks, and the host's times before and after.
type reading struct {
	from, to time.Time
	printed  [len(clockNames)]time.Duration
}

// readClocks runs a command in the sandbox that prints the clocks, and repeats it until one run was
// quick.
func readClocks(t testing.TB, b *testSandbox, line string) (r reading) {
	t.Helper()
	hosttest.Eventually(t, "the time is printed quickly", func() bool {
		r.from = time.Now()
		text := b.sh(t, line).stdout
		r.to = time.Now()
		fields := strings.Fields(text)
		if len(fields) != len(r.printed) {
			t.Fatalf("%s: %q", line, text)
		}
		for i, field := range fields {
			var seconds float64
			if _, err := fmt.Sscan(field, &seconds); err != nil {
				t.Fatalf("%s: %q", line, text)
			}
			r.printed[i] = time.Duration(seconds * float64(time.Second))
		}
		return r.to.Sub(r.from) < quick()
	})
	return r
}

// wrong returns the names of the clocks that are wrong. Clocks that count from the start are
// checked by how far they advanced since an earlier reading.
func (r reading) wrong(earlier reading) []string {
	var out []string
	for i, name := range clockNames {
		output, least, maximum := r.printed[i], time.Duration(r.from.UnixNano()), time.Duration(r.to.UnixNano())
		if i > 0 {
			output, least, maximum = output-earlier.printed[i], r.from.Sub(earlier.to), r.to.Sub(earlier.from)
		}
		if output < least-slack || output > maximum+slack {
			out = append(out, fmt.Sprintf("%s: %v, ours %v to %v", name, output, least, maximum))
		}
	}
	return out
}

// knowTheTime checks that every clock is right in a sandbox that is restored from an old state,
// both in a program that read the time before the save, and in a new one.
func knowTheTime(t testing.TB, c *Config) {
	e := c.Open(t, t.TempDir())
	b := c.start(t, e)
	serve(t, b, 8002, "time", tell)
	lines := []string{get(8002), "python3 -c 'import time; print(" + tell + ")'"}
	var before []reading
	for _, line := range lines {
		before = append(before, readClocks(t, b, line))
	}
	dir := save(t, b)
	time.Sleep(lain())
	right := func(what string, b *testSandbox) {
		t.Helper()
		for i, line := range lines {
			now := readClocks(t, b, line)
			for _, wrong := range now.wrong(before[i]) {
				t.Errorf("%s, by %q: %s", what, line, wrong)
			}
			// The control: a clock that had stopped would be noticed.
			for clock := range clockNames {
				still := now
				still.printed[clock] -= lain()
				if len(still.wrong(before[i])) == 0 {
					t.Errorf("%s: a %s that had stopped is not noticed", what, clockNames[clock])
				}
			}
		}
	}
	right("the source", b)
	right("a copy", c.copyOf(t, e, dir))
	spec := func(how guest.Renewal) engine.Spec {
		s := c.spec(b.id)
		s.Boot.Config = renewed(b.id, "box", how)
		return s
	}
	if err := saver(e).Replace(t.Context(), spec(guest.RolledBack), dir); err != nil {
		t.Fatal(err)
	}
	right("one that was rolled back", attach(t, e, b.id))
	if err := e.Remove(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	if err := saver(e).Restore(t.Context(), spec(guest.Resumed), dir); err != nil {
		t.Fatal(err)
	}
	right("one that was resumed", attach(t, e, b.id))
}
