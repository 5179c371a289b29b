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

// roleVariable makes the test binary act as a first process, to which all its descendants belong.
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

var roles = map[string]func() error{"orphans": orphans, "crowd": startMany, "missing": missing}

// inRole runs a role in a process of its own.
func inRole(t *testing.T, role string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "passed\n") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestOrphans(t *testing.T)        { inRole(t, "orphans") }
func TestCrowd(t *testing.T)          { inRole(t, "crowd") }
func TestMissingProgram(t *testing.T) { inRole(t, "missing") }

// adopt makes this process inherit orphans.
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

// none waits until there are no children.
func none() error {
	for end := hosttest.Deadline(); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		n, err := children()
		if err != nil || n == 0 {
			return err
		}
	}
	n, err := children()
	return errors.Join(err, fmt.Errorf("%d children are left", n))
}

// orphans makes 1,000 of them while known children come and go.
func orphans() error {
	a, err := adopt()
	if err != nil {
		return err
	}
	_, made, err := start(a, "/bin/sh", "-c", `i=0; while [ $i -lt 1000 ]; do (exit 3 &); i=$((i+1)); done; exit 5`)
	if err != nil {
		return err
	}
	for range 50 {
		_, exit, err := start(a, "/bin/sh", "-c", "exit 7")
		if err != nil {
			return err
		}
		if status := <-exit; status.ExitStatus() != 7 {
			return fmt.Errorf("a known child ended with %v", status)
		}
	}
	if status := <-made; status.ExitStatus() != 5 {
		return fmt.Errorf("the parent of the orphans ended with %v", status)
	}
	return none()
}

// startMany starts from many goroutines, so that children die before their start has returned.
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
						failures <- fmt.Errorf("status %v instead of %d", status, i)
					}
				case <-hosttest.Late():
					failures <- errors.New("a status is lost")
				}
			}
		})
	}
	all.Wait()
	close(failures)
	for err := range failures {
		return err
	}
	return none()
}

// missing starts a missing program: the child dies during the start.
func missing() error {
	a, err := adopt()
	if err != nil {
		return err
	}
	for range 100 {
		if _, _, err := start(a, "/nonexistent/program"); !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("start of nothing: %v", err)
		}
	}
	_, exit, err := start(a, "/bin/sh", "-c", "kill -TERM $$")
	if err != nil {
		return err
	}
	if status := <-exit; status.Signal() != syscall.SIGTERM {
		return fmt.Errorf("ended with %v", status)
	}
	return none()
}

func TestEach(t *testing.T) {
	_, exit, err := start(reap.Each{}, "/bin/sh", "-c", "exit 9")
	if err != nil {
		t.Fatal(err)
	}
	if status := <-exit; status.ExitStatus() != 9 {
		t.Errorf("ended with %v", status)
	}
	if _, _, err := start(reap.Each{}, "/nonexistent/program"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("start of nothing: %v", err)
	}
}
