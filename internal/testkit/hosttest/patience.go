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

// Deadlines in tests. Machines differ by a factor of five and more, and one
// machine does so from day to day, so no test may judge by wall time:
//
//   - A deadline only bounds a hang. It is Hang or longer, and goes through
//     Patience, which scales it by the measured speed of the machine.
//   - A test waits for the event itself: a channel, an end of a process, or
//     Eventually. It does not sleep and then look.
//   - That something takes no longer than something else is proved by the
//     mechanism: by order, by counts, or on the clock of a synctest bubble.
//     What remains to be measured in seconds belongs in bench.
//   - What varies with load, such as goroutines or descriptors right after an
//     operation, is polled with NoMore until it has settled.

// Hang is how long a test waits, on a machine of the speed of the reference,
// before it takes what it waits for to hang.
const Hang = 2 * time.Minute

// SpeedVariable hands the measured factor on to other processes of the same
// run. It holds a number; 2.5 stands for a machine that takes 2.5 times as long
// as the reference.
const SpeedVariable = "CRANNOG_TEST_SPEED"

// reference is what measure took on the machine that the factor refers to: two
// quiet virtual processors of 2024, on which `bwrap … true` takes 12 ms.
// slowest bounds the factor, so that a measurement that was itself disturbed
// cannot turn a hang into hours.
const (
	reference = 25 * time.Millisecond
	slowest   = 10
)

// Slowness returns how many times as long this machine takes as the reference
// did, with whatever runs beside the test: at least 1 and at most 10. It is
// measured once for a process, unless SpeedVariable has it.
var Slowness = sync.OnceValue(func() float64 {
	text := os.Getenv(SpeedVariable)
	if text == "" {
		return factor(measure())
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f > 0) {
		panic(fmt.Sprintf("%s is %q, which is no positive number", SpeedVariable, text))
	}
	return min(max(f, 1), slowest)
})

func factor(took time.Duration) float64 {
	return min(max(float64(took)/float64(reference), 1), slowest)
}

// measure does a fixed piece of work of the kinds that tests consist of: switches
// between threads, arithmetic, and first touches of memory, which cost ten times
// as much on some virtual machines. It starts no process, since some tests reap
// all children of theirs or are confined. It reads the clock of the kernel,
// because that of package time stands still in a synctest bubble.
func measure() time.Duration {
	const rounds, size, switches = 10, 4 << 20, 40
	data := make([]byte, 1<<20)
	there, back := pipe(), pipe()
	go echo(there[0], back[1])
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := monotonic()
	for range rounds {
		for range switches {
			if err := pass(back[0], there[1]); err != nil {
				panic(fmt.Sprintf("the speed of this machine cannot be measured: %v", err))
			}
		}
		sum := sha256.Sum256(data)
		data[0] = sum[0]
		fresh, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			panic(fmt.Sprintf("the speed of this machine cannot be measured: %v", err))
		}
		// A kernel without huge pages refuses the advice, and needs none.
		_ = unix.Madvise(fresh, unix.MADV_NOHUGEPAGE)
		for i := 0; i < size; i += 4096 {
			fresh[i] = 1
		}
		if err := unix.Munmap(fresh); err != nil {
			panic(fmt.Sprintf("the speed of this machine cannot be measured: %v", err))
		}
	}
	took := monotonic() - began
	// The other thread ends when it finds the pipe closed.
	for _, fd := range []int{there[1], back[0]} {
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

// Patience returns how long to wait here for what never takes longer than d on
// the reference machine. It is for bounds of hangs and for limits that a test
// hands to the product only so that they do not strike.
func Patience(d time.Duration) time.Duration {
	return time.Duration(float64(d) * Slowness())
}

// Hurried is a test that is expected to fail: what hangs in it is given up after
// its own time, so that the failure comes soon.
type Hurried interface{ Hang() time.Duration }

// hang returns how long something may take in a test before it hangs.
func hang(t testing.TB) time.Duration {
	if h, ok := t.(Hurried); ok {
		return h.Hang()
	}
	return Patience(Hang)
}

// Deadline returns the moment from which on something that starts now hangs.
func Deadline() time.Time { return time.Now().Add(Patience(Hang)) }

// Late returns a channel on which something arrives when what starts now hangs.
func Late() <-chan time.Time { return time.After(Patience(Hang)) }

// Context returns a context of the test that ends when what starts now hangs,
// and with the test.
func Context(t testing.TB) context.Context {
	ctx, cancel := Bounded(t)
	t.Cleanup(cancel)
	return ctx
}

// Bounded is Context for one of many steps, which ends it.
func Bounded(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), hang(t))
}

// Eventually waits until a condition holds, and fails the test with the stacks
// of all goroutines if that hangs. The condition may fail the test itself.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	end := time.Now().Add(hang(t))
	for pause := time.Millisecond; !holds(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after %s: %s\n%s", hang(t), what, stacks())
		}
		time.Sleep(pause)
	}
}

// EventuallyNoError waits until a check succeeds, and fails the test with what
// the check last said if that hangs.
func EventuallyNoError(t testing.TB, check func() error) {
	t.Helper()
	var err error
	end := time.Now().Add(hang(t))
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if err = check(); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not so after %s: %v", hang(t), err)
		}
		time.Sleep(pause)
	}
}

// NoMore waits until a count is at most a number: what an operation leaves
// behind for a moment, such as goroutines, is gone later on a busy machine.
func NoMore(t testing.TB, what string, most int, count func() int) {
	t.Helper()
	n := 0
	end := time.Now().Add(hang(t))
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if n = count(); n <= most {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d %s after %s, and at most %d are wanted\n%s", n, what, hang(t), most, stacks())
		}
		time.Sleep(pause)
	}
}

func stacks() []byte {
	buffer := make([]byte, 1<<20)
	return buffer[:runtime.Stack(buffer, true)]
}
