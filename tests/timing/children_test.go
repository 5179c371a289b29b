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

// Names under which the test program acts as a measured process.
const (
	daemonArg0  = "test-daemon"  // uses the processor in its own session
	parentArg0  = "test-parent"  // starts a daemon and ends
	waitingArg0 = "test-waiting" // starts a daemon and ends after it
)

// daemonTime is the processor time that a daemon uses.
const daemonTime = 300 * time.Millisecond

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case daemonArg0:
		for begin := ownTime(); ownTime()-begin < daemonTime; {
		}
		os.Exit(0)
	case parentArg0, waitingArg0:
		cmd := exec.Command("/proc/self/exe") // ends by itself
		cmd.Args = []string{daemonArg0}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		ended, hold, err := os.Pipe()
		if err == nil {
			cmd.ExtraFiles = []*os.File{hold} // the daemon's end closes the file
			err = cmd.Start()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		hold.Close()
		if os.Args[0] == waitingArg0 {
			ended.Read(make([]byte, 1)) // returns at the end of the file
		}
		os.Exit(7)
	case "test-killed":
		unix.Kill(os.Getpid(), unix.SIGKILL) // the test sees the signal
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

// runAs runs the test program under a name.
func runAs(t *testing.T, name string) result {
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

// TestDaemonsAreMeasured checks that the time of a daemon counts, although it has left its parent.
func TestDaemonsAreMeasured(t *testing.T) {
	r := runAs(t, waitingArg0)
	// The kernel rounds the times of a process and of its children separately.
	if r.code != 7 || r.processor < daemonTime*9/10 {
		t.Errorf("code %d after %v of processor time, the daemon used %v", r.code, r.processor, daemonTime)
	}
	// A daemon that still runs does not prevent the measurement.
	if r := runAs(t, parentArg0); r.code != 7 {
		t.Errorf("got exit code %d", r.code)
	}
}

func TestSignalIsExitCode(t *testing.T) {
	if r := runAs(t, "test-killed"); r.code != 128+int(unix.SIGKILL) {
		t.Errorf("got exit code %d", r.code)
	}
}

func TestProcessTimeSkipsName(t *testing.T) {
	got, err := processTime("12 (a) b) 9 9) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")
	if want := (11 + 12 + 13 + 14) * tick; err != nil || got != want {
		t.Errorf("processTime: got %v, %v, want %v", got, err, want)
	}
	if _, err := processTime("12 (a) S 1"); err == nil {
		t.Error("processTime accepted a line that is cut off")
	}
}

// TestWorkEnds checks that the calibration's work ends, even on one processor.
func TestWorkEnds(t *testing.T) {
	if err := work(); err != nil {
		t.Error(err)
	}
}
