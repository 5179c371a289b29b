package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// result is a command's result and usage.
type result struct {
	code      int
	processor time.Duration
	wall      time.Duration
}

// run runs a command and returns the processor time, user and system, of the command and all its
// descendants. Sandboxes, gateways and servers are daemons that no process waits for, so this
// process is a subreaper: it becomes their parent and waits for them. A control group would not
// include them, because the product moves them into its own groups.
func run(args []string) (r result, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return r, fmt.Errorf("become a subreaper: %w", err)
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return r, err
	}
	// "go test" sends SIGQUIT to a hanging program to get its stacks. A SIGINT from a terminal
	// reaches the whole group by itself.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGINT)
	defer func() {
		signal.Stop(signals)
		close(signals)
	}()
	before, err := childrenTime()
	if err != nil {
		return r, err
	}
	began := time.Now()
	child, err := os.StartProcess(program, args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return r, err
	}
	go func() {
		for s := range signals {
			if s != syscall.SIGINT {
				_ = child.Signal(s) // the child may have ended
			}
		}
	}()
	if r.code, err = reap(child.Pid); err != nil {
		return r, err
	}
	r.wall = time.Since(began)
	after, err := childrenTime()
	if err != nil {
		return r, err
	}
	living, err := livingTime(os.Getpid())
	r.processor = after - before + living
	return r, err
}

// reap waits until the child and all descendants that ended with it were waited for. It returns the
// child's exit code.
func reap(child int) (code int, err error) {
	code = -1
	for options := 0; ; {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, options|unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD), err == nil && pid == 0:
			return code, nil
		case err != nil:
			return code, fmt.Errorf("wait: %w", err)
		case pid == child:
			options = unix.WNOHANG
			if code = status.ExitStatus(); status.Signaled() {
				code = 128 + int(status.Signal())
				fmt.Fprintf(os.Stderr, "signal: %v\n", status.Signal())
			}
		}
	}
}

// childrenTime returns the processor time of the children that were waited for, and of their
// descendants.
func childrenTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// tick is the unit of /proc/PID/stat.
const tick = time.Second / 100

// livingTime returns the processor time of the descendants that still run, such as a gateway that
// waits for its next sandbox.
func livingTime(parent int) (sum time.Duration, err error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil // the process has ended
	}
	if err != nil {
		return 0, err
	}
	for field := range strings.FieldsSeq(string(children)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // the process has ended
		}
		ownTime, err := processTime(string(stat))
		if err != nil {
			return 0, err
		}
		childTime, err := livingTime(pid)
		if err != nil {
			return 0, err
		}
		sum += ownTime + childTime
	}
	return sum, nil
}

// processTime returns the processor time in a line of /proc/PID/stat: that of the process, and of
// children that it waited for. The name in parentheses may contain any character.
func processTime(stat string) (sum time.Duration, err error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 15 {
		return 0, fmt.Errorf("not a line of /proc/PID/stat: %q", stat)
	}
	for _, field := range fields[11:15] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}
