// Package perfcount owns counting how much kernel work programs cause: page faults, context
// switches, system calls and processor time. Counts do not depend on the speed of a machine, so
// tests can compare them with budgets.
package perfcount

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Counts holds how much kernel work some programs have caused so far.
type Counts struct {
	Faults    int64         // page faults; pages that a system call populated do not count
	Switches  int64         // context switches, voluntary and involuntary
	Calls     int64         // system calls, if HasCalls
	HasCalls  bool          // whether this host has the tracepoint that counts system calls
	Processor time.Duration // processor time of all threads
}

// Sub returns the counts since an earlier reading.
func (c Counts) Sub(before Counts) Counts {
	return Counts{
		Faults: c.Faults - before.Faults, Switches: c.Switches - before.Switches,
		Calls: c.Calls - before.Calls, HasCalls: c.HasCalls && before.HasCalls,
		Processor: c.Processor - before.Processor,
	}
}

// Counter counts the work of the programs that its goroutine starts, of their threads and of all
// their descendants, because children inherit counters. It counts descendants whose parent has
// ended, and does not count between fork and exec.
type Counter struct {
	faults, switches, clock event
	calls                   *event // nil if there is no tracepoint
}

// Open returns a counter for the programs that the calling goroutine starts from now on. It locks
// the goroutine to its thread until Close, because processes inherit counters from the thread that
// starts them.
func Open() (_ *Counter, err error) {
	runtime.LockOSThread()
	c := &Counter{faults: closed, switches: closed, clock: closed}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.faults, err = open(unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS); err != nil {
		return nil, err
	}
	if c.switches, err = open(unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CONTEXT_SWITCHES); err != nil {
		return nil, err
	}
	if c.clock, err = open(unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK); err != nil {
		return nil, err
	}
	if id, ok := callsTracepoint(); ok {
		calls, err := open(unix.PERF_TYPE_TRACEPOINT, id)
		if err != nil {
			return nil, err
		}
		c.calls = &calls
	}
	return c, nil
}

// Read returns the counts so far. Programs that still run are included.
func (c *Counter) Read() (Counts, error) {
	faults, err1 := c.faults.read()
	switches, err2 := c.switches.read()
	clock, err3 := c.clock.read()
	counts := Counts{Faults: faults, Switches: switches, Processor: time.Duration(clock)}
	var err4 error
	if c.calls != nil {
		counts.HasCalls = true
		counts.Calls, err4 = c.calls.read()
	}
	return counts, errors.Join(err1, err2, err3, err4)
}

// Close frees the counter. It must be called by the goroutine that opened it.
func (c *Counter) Close() error {
	runtime.UnlockOSThread()
	err := errors.Join(c.faults.close(), c.switches.close(), c.clock.close())
	if c.calls != nil {
		err = errors.Join(err, c.calls.close())
	}
	return err
}

// event is the descriptor of one performance counter.
type event int

const closed event = -1

// open opens a counter that is disabled in this thread. A program that the thread starts inherits
// it, and exec enables it there.
func open(kind uint32, config uint64) (event, error) {
	attr := unix.PerfEventAttr{
		Type: kind, Config: config,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Bits: unix.PerfBitDisabled | unix.PerfBitInherit | unix.PerfBitEnableOnExec,
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return closed, fmt.Errorf("open performance counter %d:%d: %w", kind, config, err)
	}
	return event(fd), nil
}

func (e event) read() (int64, error) {
	var buf [8]byte
	n, err := unix.Read(int(e), buf[:])
	if err != nil {
		return 0, fmt.Errorf("read performance counter: %w", err)
	}
	if n != len(buf) {
		return 0, fmt.Errorf("read performance counter: %d bytes instead of %d", n, len(buf))
	}
	return int64(binary.NativeEndian.Uint64(buf[:])), nil
}

func (e event) close() error {
	if e == closed {
		return nil
	}
	return unix.Close(int(e))
}

// callsTracepoint returns the number of the kernel's tracepoint at the entry of every system call.
// Only root may read it, if tracefs is mounted.
func callsTracepoint() (uint64, bool) {
	for _, root := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		data, err := os.ReadFile(root + "/events/raw_syscalls/sys_enter/id")
		if err != nil {
			continue
		}
		if id, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64); err == nil {
			return id, true
		}
	}
	return 0, false
}
