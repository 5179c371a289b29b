package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/reexec"
)

// throttleArg0 is the argv[0] of the process that occupies a processor, and throttleShare the share
// that it occupies.
const (
	throttleArg0  = "bench-throttle"
	throttleShare = 0.75
)

// throttlePeriod is short compared with the measured times, and long compared with a context
// switch.
const throttlePeriod = 20 * time.Millisecond

func throttleRole() reexec.Role { return reexec.Role{Match: reexec.Arg0(throttleArg0), Run: throttle} }

// throttleProcessors leaves a quarter of each processor to all other programs of this host until
// stop is called. It needs the right to use a real-time priority, which root has.
func throttleProcessors(ctx context.Context) (stop func() error, err error) {
	var all []*exec.Cmd
	stop = func() error {
		var errs []error
		for _, cmd := range all {
			if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				errs = append(errs, err)
			}
			_ = cmd.Wait() // always reports the kill
		}
		return errors.Join(errs...)
	}
	for cpu := range runtime.NumCPU() {
		cmd := exec.CommandContext(ctx, "/proc/self/exe", strconv.Itoa(cpu))
		cmd.Args[0], cmd.Stderr = throttleArg0, os.Stderr
		ready, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		all = append(all, cmd)
		if _, err := ready.Read(make([]byte, 1)); err != nil {
			return nil, errors.Join(fmt.Errorf("throttle processor %d: %w", cpu, err), stop())
		}
	}
	return stop, nil
}

// throttle occupies throttleShare of one processor, with priority over all programs without a
// real-time priority.
func throttle() {
	runtime.LockOSThread()
	cpu, err := strconv.Atoi(os.Args[1])
	if err == nil {
		var only unix.CPUSet
		only.Set(cpu)
		err = unix.SchedSetaffinity(0, &only)
	}
	if err == nil {
		err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	parent := os.Getppid()
	for end := time.Now(); os.Getppid() == parent; end = end.Add(throttlePeriod) {
		busyUntil := end.Add(time.Duration(throttleShare * float64(throttlePeriod)))
		for time.Now().Before(busyUntil) {
		}
		time.Sleep(time.Until(end.Add(throttlePeriod)))
		// A missed period is not compensated.
		if now := time.Now(); now.Sub(end) > 2*throttlePeriod {
			end = now.Add(-throttlePeriod)
		}
	}
}
