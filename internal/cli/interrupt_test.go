package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// beInterrupted is the environment variable that makes the test run as the interrupted process.
const beInterrupted = "CRANNOG_TEST_INTERRUPTED"

// The first interrupt cancels the context, the second ends the process.
func TestSecondInterrupt(t *testing.T) {
	if os.Getenv(beInterrupted) != "" {
		err := interruptible(t.Context(), func(ctx context.Context) error {
			fmt.Println("works")
			<-ctx.Done()
			fmt.Println("ends")
			select {} // as long as a slow disk takes
		})
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestSecondInterrupt$", "-test.timeout=10m")
	child.Env = append(os.Environ(), beInterrupted+"=1")
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	output := bufio.NewScanner(out)
	for _, want := range []string{"works", "ends"} {
		if !output.Scan() || output.Text() != want {
			t.Errorf("the process printed %q, want %q", output.Text(), want)
		}
		if err := child.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
	}
	err = child.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("the process ended with %v, want signal SIGINT", err)
	}
}
