package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test program plays the processes that are measured.
const (
	daemonArg0 = "test-daemon" // uses the processor in a session of its own
	parentArg0 = "test-parent" // starts a daemon and ends
	leaverArg0 = "test-leaver" // starts a daemon and ends when it has ended
)

// used is how much processor time a daemon takes.
const used = 300 * time.Millisecond

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case daemonArg0:
		for begin := ownTime(); ownTime()-begin < used; {
		}
		os.Exit(0)
	case parentArg0, leaverArg0:
		cmd := exec.Command("/proc/self/exe") // it ends by itself
		cmd.Args = []string{daemonArg0}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		ended, hold, err := os.Pipe()
		if err == nil {
			cmd.ExtraFiles = []*os.File{hold} // which closes with the daemon
			err = cmd.Start()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		hold.Close()
		if os.Args[0] == leaverArg0 {
			ended.Read(make([]byte, 1)) // it ends the file
		}
		os.Exit(7)
	case "test-killed":
		unix.Kill(os.Getpid(), unix.SIGKILL) // seen by the test
	}
	os.Exit(m.Run())
}

func ownTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// as runs the test program under a name.
func as(t *testing.T, name string) result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := run([]string{"/bin/bash", "-c", `exec -a "$0" "$1"`, name, self})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A daemon has left its parent, and is measured all the same.
func TestDaemonsAreMeasured(t *testing.T) {
	r := as(t, leaverArg0)
	// The kernel rounds the times of a process and of its children separately.
	if r.code != 7 || r.processor < used*9/10 {
		t.Errorf("code %d after %v of processor time, the daemon used %v", r.code, r.processor, used)
	}
	// One that still runs is measured so far.
	if r := as(t, parentArg0); r.code != 7 {
		t.Errorf("code %d", r.code)
	}
}

func TestASignalIsTheCode(t *testing.T) {
	if r := as(t, "test-killed"); r.code != 128+int(unix.SIGKILL) {
		t.Errorf("code %d", r.code)
	}
}

func TestProcessTimeIsReadBehindTheName(t *testing.T) {
	got, err := processTime("12 (a) b) 9 9) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")
	if want := (11 + 12 + 13 + 14) * tick; err != nil || got != want {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if _, err := processTime("12 (a) S 1"); err == nil {
		t.Error("a line that is cut was read")
	}
}

// The calibration's work has to end, on one processor too.
func TestWorkEnds(t *testing.T) {
	if err := work(); err != nil {
		t.Error(err)
	}
}
