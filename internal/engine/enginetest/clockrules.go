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

// storageTime returns how long a state is stored before it is restored.
func storageTime() time.Duration { return min(hosttest.Patience(5*time.Second), time.Minute) }

// slack is how wrong a clock may be. It is shorter than storageTime, so that a clock that stopped
// during that time is noticed.
const slack = time.Second

// maxReadingTime bounds how long a reading may take to be precise enough. On a slow machine every
// reading takes longer.
func maxReadingTime() time.Duration { return (storageTime() - slack) / 2 }

// clockExpression is Python code that returns the time of day and the clocks that count from the
// start, in the order of clockNames.
const clockExpression = `" ".join(str(x) for x in (time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), open("/proc/uptime").read().split()[0]))`

var clockNames = [...]string{"wall clock", "monotonic clock", "boot clock", "uptime"}

// reading holds the values of a sandbox's clocks, and the host's times before and after.
type reading struct {
	from, to time.Time
	clocks   [len(clockNames)]time.Duration
}

// readClocks runs a command in the sandbox that prints the clocks, and repeats it until a run takes
// less than maxReadingTime.
func readClocks(t testing.TB, b *testSandbox, line string) (r reading) {
	t.Helper()
	hosttest.Eventually(t, "the time is printed quickly", func() bool {
		r.from = time.Now()
		text := b.sh(t, line).stdout
		r.to = time.Now()
		fields := strings.Fields(text)
		if len(fields) != len(r.clocks) {
			t.Fatalf("the command %s printed %q, want one number for each clock", line, text)
		}
		for i, field := range fields {
			var seconds float64
			if _, err := fmt.Sscan(field, &seconds); err != nil {
				t.Fatalf("the command %s printed %q, want numbers only", line, text)
			}
			r.clocks[i] = time.Duration(seconds * float64(time.Second))
		}
		return r.to.Sub(r.from) < maxReadingTime()
	})
	return r
}

// wrongClocks describes the clocks that are wrong. Clocks that count from the start are checked by
// how far they have advanced since an earlier reading.
func (r reading) wrongClocks(earlier reading, checked int) []string {
	var names []string
	for i, name := range clockNames[:checked] {
		value, minimum, maximum := r.clocks[i], time.Duration(r.from.UnixNano()), time.Duration(r.to.UnixNano())
		if i > 0 {
			value, minimum, maximum = value-earlier.clocks[i], r.from.Sub(earlier.to), r.to.Sub(earlier.from)
		}
		if value < minimum-slack || value > maximum+slack {
			names = append(names, fmt.Sprintf("%s: got %v, want %v to %v", name, value, minimum, maximum))
		}
	}
	return names
}

// clocksAreRight checks that every clock is right in a sandbox that is restored from an old state.
// One program read the time before the save, and another one is new.
func clocksAreRight(t testing.TB, c *Config) {
	e := c.Open(t, t.TempDir())
	b := c.start(t, e)
	serve(t, b, 8002, "time", clockExpression)
	lines := []string{get(8002), "python3 -c 'import time; print(" + clockExpression + ")'"}
	var before []reading
	for _, line := range lines {
		before = append(before, readClocks(t, b, line))
	}
	checked := len(clockNames)
	if c.MonotonicStops {
		checked = 1 // the wall clock
	}
	dir := save(t, b)
	time.Sleep(storageTime())
	checkClocks := func(name string, b *testSandbox) {
		t.Helper()
		for i, line := range lines {
			now := readClocks(t, b, line)
			for _, wrong := range now.wrongClocks(before[i], checked) {
				t.Errorf("the clocks of %s, read with %q: %s", name, line, wrong)
			}
			// The control: a clock that had stopped would be noticed.
			for clock := range checked {
				stopped := now
				stopped.clocks[clock] -= storageTime()
				if len(stopped.wrongClocks(before[i], checked)) == 0 {
					t.Errorf("control: %s: a %s that had stopped is not noticed", name, clockNames[clock])
				}
			}
		}
	}
	checkClocks("the source", b)
	checkClocks("a copy", c.copyOf(t, e, dir))
	spec := func(how guest.Renewal) engine.Spec {
		s := c.spec(b.id)
		s.Boot.Config = renewed(b.id, "box", how)
		return s
	}
	if err := saver(e).Replace(t.Context(), spec(guest.RolledBack), dir); err != nil {
		t.Fatal(err)
	}
	checkClocks("a sandbox that was rolled back", attach(t, e, b.id))
	if err := e.Remove(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	if err := saver(e).Restore(t.Context(), spec(guest.Resumed), dir); err != nil {
		t.Fatal(err)
	}
	checkClocks("a sandbox that was resumed", attach(t, e, b.id))
}
