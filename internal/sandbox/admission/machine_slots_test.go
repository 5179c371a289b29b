package admission

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// holdEnv makes this test binary another process that holds a slot or a ticket.
const holdEnv = "CRANNOG_ADMISSION_TEST_HOLD"

func TestMain(m *testing.M) {
	if what, dir, ok := strings.Cut(os.Getenv(holdEnv), ":"); ok {
		os.Exit(hold(what, dir))
	}
	os.Exit(m.Run())
}

func hold(what, dir string) int {
	m, err := OpenMachine(dir, 1)
	if err != nil {
		return 1
	}
	if what == "slot" {
		if m.try() == nil {
			return 2
		}
	} else if _, err := m.drawTicket(); err != nil {
		return 3
	}
	_, _ = os.Stdout.WriteString("held\n")
	// The process holds it until the process is killed or the test has ended. With select{} the
	// runtime would report a deadlock.
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startHolder starts another process that holds a slot or a ticket, and returns a function that
// kills it.
func startHolder(t *testing.T, what, dir string) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+what+":"+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // which reports the kill
	})
	t.Cleanup(kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the other process: %q, %v", line, err)
	}
	return kill
}

func openMachine(t *testing.T, slots int) *Machine {
	t.Helper()
	m, err := OpenMachine(filepath.Join(t.TempDir(), "starts"), slots)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// ignore is a reportAhead function that does nothing.
func ignore(int) {}

func TestMachineLimitsSlots(t *testing.T) {
	m := openMachine(t, 3)
	var now, maximum atomic.Int64
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			release, err := m.acquire(t.Context(), ignore)
			if err != nil {
				t.Error(err)
				return
			}
			if n := now.Add(1); n > maximum.Load() {
				maximum.Store(n)
			}
			now.Add(-1)
			release()
		})
	}
	group.Wait()
	if maximum.Load() > 3 {
		t.Errorf("%d at once, want at most 3", maximum.Load())
	}
	if left := entries(t, m); len(left) > 3 {
		t.Errorf("%v remain, want at most the 3 slots", left)
	}
}

func entries(t *testing.T, m *Machine) (names []string) {
	t.Helper()
	list, err := os.ReadDir(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestSlotIsFreeAfterProcessDies(t *testing.T) {
	m := openMachine(t, 1)
	kill := startHolder(t, "slot", m.dir)
	if m.try() != nil {
		t.Fatal("two processes have one slot")
	}
	reported := make(chan int, 1)
	done := make(chan error, 1)
	go func() {
		release, err := m.acquire(t.Context(), func(ahead int) {
			select {
			case reported <- ahead:
			default:
			}
		})
		if err == nil {
			release()
		}
		done <- err
	}()
	if ahead := <-reported; ahead != 0 {
		t.Errorf("%d ahead, want 0", ahead)
	}
	kill()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTicketsAreServedInOrder(t *testing.T) {
	m := openMachine(t, 1)
	kill := startHolder(t, "ticket", m.dir)
	if m.try() != nil {
		t.Fatal("a slot was taken before the process that waits")
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan int, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := m.acquire(ctx, func(ahead int) {
			select {
			case waits <- ahead:
			default:
			}
		})
		ended <- err
	}()
	if ahead := <-waits; ahead != 1 {
		t.Errorf("%d ahead, want the other process", ahead)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("acquire with a canceled context: got error %v, want Canceled", err)
	}
	kill()
	release, err := m.acquire(t.Context(), ignore)
	if err != nil {
		t.Fatal(err)
	}
	release()
	for _, name := range entries(t, m) {
		if strings.HasPrefix(name, ticketPrefix) {
			t.Errorf("a ticket is left: %s", name)
		}
	}
}

// TestStoppedProcessDoesNotStopOthers checks that a process that is stopped while it holds a slot
// or the oldest ticket delays others only until the stall timeout.
func TestStoppedProcessDoesNotStopOthers(t *testing.T) {
	for _, what := range []string{"slot", "ticket"} {
		t.Run(what, func(t *testing.T) {
			m := openMachine(t, 1)
			m.stallTime = 0
			startHolder(t, what, m.dir)
			release, err := m.acquire(t.Context(), ignore)
			if err != nil {
				t.Fatal(err)
			}
			release()
		})
	}
}

func TestOpenMachineRejectsWritableDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "starts")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenMachine(dir, 1); err != nil {
		t.Fatal(err) // a private directory is accepted
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenMachine(dir, 1); err == nil {
		t.Error("a directory is accepted in which every user could hold the slots")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenMachine(link, 1); err == nil {
		t.Error("a symbolic link is followed")
	}
}
