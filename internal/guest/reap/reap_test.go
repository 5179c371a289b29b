package reap_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/reap"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// roleVariable makes the test binary run a role as the process that inherits all orphans.
const roleVariable = "REAP_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := roles[role](); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		fmt.Println("passed")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var roles = map[string]func() error{"orphans": orphans, "many": startMany, "missing": missing}

// inRole runs a role in a process of its own.
func inRole(t *testing.T, role string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "passed\n") {
		t.Errorf("role %s: got %v, want passed: %s", role, err, out)
	}
}

func TestOrphans(t *testing.T)        { inRole(t, "orphans") }
func TestManyStarts(t *testing.T)     { inRole(t, "many") }
func TestMissingProgram(t *testing.T) { inRole(t, "missing") }

// adopt makes this process inherit orphans and reaps them.
func adopt() (*reap.All, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	a := reap.NewAll()
	go func() {
		if err := a.Run(context.Background()); err != nil {
			panic(err)
		}
	}()
	return a, nil
}

// start starts a program.
func start(a reap.Reaper, argv ...string) (int, <-chan syscall.WaitStatus, error) {
	return a.Start(func() (int, error) {
		return syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	})
}

// children counts the children of this process, including zombies.
func children() (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	count := 0
	for _, e := range entries {
		f, err := os.Open("/proc/" + e.Name() + "/status")
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if lines.Text() == fmt.Sprintf("PPid:\t%d", os.Getpid()) {
				count++
			}
		}
		f.Close()
	}
	return count, nil
}

// waitForNone waits until this process has no children.
func waitForNone() error {
	for end := hosttest.Deadline(); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		n, err := children()
		if err != nil || n == 0 {
			return err
		}
	}
	n, err := children()
	return errors.Join(err, fmt.Errorf("%d children are left", n))
}

// orphans creates 1,000 orphans while other children start and end.
func orphans() error {
	a, err := adopt()
	if err != nil {
		return err
	}
	_, parent, err := start(a, "/bin/sh", "-c", `i=0; while [ $i -lt 1000 ]; do (exit 3 &); i=$((i+1)); done; exit 5`)
	if err != nil {
		return err
	}
	for range 50 {
		_, exit, err := start(a, "/bin/sh", "-c", "exit 7")
		if err != nil {
			return err
		}
		if status := <-exit; status.ExitStatus() != 7 {
			return fmt.Errorf("child: got the status %v, want 7", status)
		}
	}
	if status := <-parent; status.ExitStatus() != 5 {
		return fmt.Errorf("parent of the orphans: got the status %v, want 5", status)
	}
	return waitForNone()
}

// startMany starts children from many goroutines, so that some end before their start has returned.
func startMany() error {
	a, err := adopt()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	failures := make(chan error, 400)
	for i := range 20 {
		all.Go(func() {
			for range 20 {
				_, exit, err := start(a, "/bin/sh", "-c", fmt.Sprintf("exit %d", i))
				if err != nil {
					failures <- err
					continue
				}
				select {
				case status := <-exit:
					if status.ExitStatus() != i {
						failures <- fmt.Errorf("got the status %v, want %d", status, i)
					}
				case <-hosttest.Late():
					failures <- errors.New("a status was not delivered")
				}
			}
		})
	}
	all.Wait()
	close(failures)
	for err := range failures {
		return err
	}
	return waitForNone()
}

// missing starts a missing program, whose child process ends during the start.
func missing() error {
	a, err := adopt()
	if err != nil {
		return err
	}
	for range 100 {
		if _, _, err := start(a, "/nonexistent/program"); !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("missing program: got %v, want ENOENT", err)
		}
	}
	_, exit, err := start(a, "/bin/sh", "-c", "kill -TERM $$")
	if err != nil {
		return err
	}
	if status := <-exit; status.Signal() != syscall.SIGTERM {
		return fmt.Errorf("got the status %v, want SIGTERM", status)
	}
	return waitForNone()
}

func TestEach(t *testing.T) {
	_, exit, err := start(reap.Each{}, "/bin/sh", "-c", "exit 9")
	if err != nil {
		t.Fatal(err)
	}
	if status := <-exit; status.ExitStatus() != 9 {
		t.Errorf("got the status %v, want 9", status)
	}
	if _, _, err := start(reap.Each{}, "/nonexistent/program"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("missing program: got %v, want ENOENT", err)
	}
}
