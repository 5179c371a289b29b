package hosttest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Rules for deadlines in tests. Machines differ in speed by a factor of five and more, and so does
// one machine from day to day, so no test may fail because of wall time:
//
//   - A deadline only bounds a hang. It is Hang or longer, and goes through
//     Patience, which scales it by the measured speed of the machine.
//   - A test waits for the event itself: a channel, the end of a process, or
//     Eventually. It does not sleep and then look.
//   - To prove that one thing takes no longer than another, a test checks the
//     mechanism: order, counts, or the clock of a synctest bubble. Durations
//     are measured in bench.
//   - A count that varies with load, such as goroutines or descriptors right
//     after an operation, is polled with EventuallyAtMost until it is low enough.

// Hang is how long a test waits, on a machine as fast as the reference, before it assumes a hang.
const Hang = 2 * time.Minute

// SpeedVariable passes the measured factor to other processes of the same run. It holds a number;
// 2.5 stands for a machine that takes 2.5 times as long as the reference.
const SpeedVariable = "CRANNOG_TEST_SPEED"

const (
	// reference is how long measure took on the reference machine: two idle virtual processors of
	// 2024, on which `bwrap … true` takes 12 ms.
	reference = 25 * time.Millisecond
	// maxSlowness bounds the factor, so that a disturbed measurement cannot turn a hang into hours.
	maxSlowness = 10
)

// Slowness returns how many times as long this machine takes as the reference, with the current
// load: at least 1 and at most 10. It is measured once for each process, unless SpeedVariable is
// set.
var Slowness = sync.OnceValue(func() float64 {
	text := os.Getenv(SpeedVariable)
	if text == "" {
		return slownessOf(measure())
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f > 0) {
		panic(fmt.Sprintf("%s is %q, which is not a positive number", SpeedVariable, text))
	}
	return min(max(f, 1), maxSlowness)
})

// slownessOf returns the factor of a machine on which measure took that long.
func slownessOf(took time.Duration) float64 {
	return min(max(float64(took)/float64(reference), 1), maxSlowness)
}

// measure does a fixed amount of work that resembles the work of tests: switches between threads,
// arithmetic, and first accesses to memory, which cost ten times as much on some virtual machines.
// It starts no process, because some tests reap all their children or are confined. It reads the
// kernel's clock, because that of package time stops in a synctest bubble.
func measure() time.Duration {
	const rounds, size, switches = 10, 4 << 20, 40
	data := make([]byte, 1<<20)
	requests, replies := pipe(), pipe()
	go echo(requests[0], replies[1])
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	started := monotonic()
	for range rounds {
		for range switches {
			if err := pass(replies[0], requests[1]); err != nil {
				panic(fmt.Sprintf("the speed of this machine cannot be measured: %v", err))
			}
		}
		sum := sha256.Sum256(data)
		data[0] = sum[0]
		fresh, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			panic(fmt.Sprintf("the speed of this machine cannot be measured: %v", err))
		}
		// A kernel without huge pages rejects the advice and does not need it.
		_ = unix.Madvise(fresh, unix.MADV_NOHUGEPAGE)
		for i := 0; i < size; i += 4096 {
			fresh[i] = 1
		}
		if err := unix.Munmap(fresh); err != nil {
			panic(fmt.Sprintf("the speed of this machine cannot be measured: %v", err))
		}
	}
	took := monotonic() - started
	// The other thread ends when the pipe is closed.
	for _, fd := range []int{requests[1], replies[0]} {
		if err := unix.Close(fd); err != nil {
			panic(fmt.Sprintf("the speed of this machine cannot be measured: %v", err))
		}
	}
	return took
}

func pipe() (ends [2]int) {
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		panic(fmt.Sprintf("the speed of this machine cannot be measured: %v", err))
	}
	return ends
}

// pass sends a byte to the other thread and waits for it.
func pass(from, to int) error {
	var one [1]byte
	if _, err := unix.Write(to, one[:]); err != nil {
		return err
	}
	for {
		n, err := unix.Read(from, one[:])
		if err == nil && n == 0 {
			return io.ErrUnexpectedEOF
		}
		if err != unix.EINTR {
			return err
		}
	}
}

// echo sends back what it reads until its pipe is closed.
func echo(from, to int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer unix.Close(from)
	defer unix.Close(to)
	var one [1]byte
	for {
		n, err := unix.Read(from, one[:])
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			return
		}
		if _, err := unix.Write(to, one[:]); err != nil {
			return
		}
	}
}

func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(fmt.Sprintf("the kernel has no monotonic clock: %v", err))
	}
	return time.Duration(t.Nano())
}

// Patience returns how long to wait here for an event that takes at most d on the reference
// machine. It is for bounds of hangs, and for limits of the product that a test sets so high that
// they have no effect.
func Patience(d time.Duration) time.Duration {
	return time.Duration(float64(d) * Slowness())
}

// ShortHang is implemented by a testing.TB whose test is expected to fail. It has a shorter timeout
// for hangs, so that it fails soon.
type ShortHang interface{ Hang() time.Duration }

// hang returns how long something may take in a test before it hangs.
func hang(t testing.TB) time.Duration {
	if h, ok := t.(ShortHang); ok {
		return h.Hang()
	}
	return Patience(Hang)
}

// Deadline returns the time at which an operation that starts now counts as hanging.
func Deadline() time.Time { return time.Now().Add(Patience(Hang)) }

// Late returns a channel that delivers a value when an operation that starts now counts as hanging.
func Late() <-chan time.Time { return time.After(Patience(Hang)) }

// Context returns a context that ends with the test, or when an operation that starts now counts as
// hanging.
func Context(t testing.TB) context.Context {
	ctx, cancel := Bounded(t)
	t.Cleanup(cancel)
	return ctx
}

// Bounded is Context for one of many steps of a test. The returned function ends the context at the
// end of the step.
func Bounded(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), hang(t))
}

// Eventually waits until a condition is true. If that hangs, it fails the test with the stacks of
// all goroutines. The condition may fail the test itself.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	end := time.Now().Add(hang(t))
	for pause := time.Millisecond; !condition(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still false after %s: %s\n%s", hang(t), what, stacks())
		}
		time.Sleep(pause)
	}
}

// EventuallyNoError waits until a check returns no error. If that hangs, it fails the test with the
// last error.
func EventuallyNoError(t testing.TB, check func() error) {
	t.Helper()
	var err error
	end := time.Now().Add(hang(t))
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if err = check(); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still failing after %s: %v", hang(t), err)
		}
		time.Sleep(pause)
	}
}

// EventuallyAtMost waits until a count is at most limit. Resources that an operation leaves for a moment,
// such as goroutines, may disappear later on a busy machine.
func EventuallyAtMost(t testing.TB, what string, limit int, count func() int) {
	t.Helper()
	n := 0
	end := time.Now().Add(hang(t))
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if n = count(); n <= limit {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d %s after %s, want at most %d\n%s", n, what, hang(t), limit, stacks())
		}
		time.Sleep(pause)
	}
}

// stacks returns the stacks of all goroutines.
func stacks() []byte {
	buffer := make([]byte, 1<<20)
	return buffer[:runtime.Stack(buffer, true)]
}
