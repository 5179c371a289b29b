package attempts

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"
)

// Arguments that select what the probe program does.
const (
	RunAll  = "all"  // every attempt except Last, in child processes
	RunLast = "last" // the attempt Last
	runFrom = "from" // the attempts from one to another, until one ends the process
)

// maxAttemptTime bounds an attempt, so that a hanging attempt fails the test.
const maxAttemptTime = 2 * time.Minute

// Main is the probe program. The target is in the environment variable Variable.
func Main(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: probe all|last|from FIRST LAST|nothing|wait|who")
	}
	switch args[0] {
	case DoNothing:
		return nil
	case Wait:
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	case PrintUser:
		set, err := effective()
		fmt.Printf("user %d\ngroup %d\ncapabilities %016x\n", os.Geteuid(), os.Getegid(), set)
		return err
	}
	var target Target
	if err := json.Unmarshal([]byte(os.Getenv(Variable)), &target); err != nil {
		return fmt.Errorf("%s: %w", Variable, err)
	}
	if args[0] == runFrom && len(args) == 3 {
		return runRange(args[1], args[2], &target)
	}
	if args[0] != RunAll && args[0] != RunLast {
		return fmt.Errorf("unknown argument %q", args[0])
	}
	if target.Control {
		end, err := Serve(&target)
		if err != nil {
			return fmt.Errorf("control: %w", err)
		}
		defer end()
	}
	all := All()
	last := len(all) - 1
	if args[0] == RunLast {
		return supervise(all[last:], os.Stdout)
	}
	return supervise(all[:last], os.Stdout)
}

// Variable is the environment variable with the target as JSON.
const Variable = "ESCAPE_TARGET"

// runRange makes the attempts from one name to another.
func runRange(first, last string, t *Target) error {
	all := All()
	indexOf := func(name string) int {
		return slices.IndexFunc(all, func(a Attempt) bool { return a.Name == name })
	}
	start, end := indexOf(first), indexOf(last)
	if start < 0 || end < start {
		return fmt.Errorf("there are no attempts from %q to %q", first, last)
	}
	out := json.NewEncoder(os.Stdout)
	for _, a := range all[start : end+1] {
		if err := out.Encode(a.Make(t)); err != nil {
			return err
		}
	}
	return nil
}

// supervise makes all attempts in child processes. If an attempt ends its process, the kernel has
// refused it; the next child continues after it.
func supervise(all []Attempt, w io.Writer) error {
	out := json.NewEncoder(w)
	for next := 0; next < len(all); {
		made, ended, err := batch(all[next:], out)
		if err != nil {
			return err
		}
		if next += made; next < len(all) {
			if ended == "" {
				return fmt.Errorf("the attempt %s ended its process without an error", all[next].Name)
			}
			if err := out.Encode(Answer{Name: all[next].Name, Verdict: Blocked, Text: "ended: " + ended}); err != nil {
				return err
			}
			next++
		}
	}
	return nil
}

// batch runs a child, and returns the number of its answers and the signal that ended it.
func batch(all []Attempt, out *json.Encoder) (made int, ended string, err error) {
	name := all[0].Name
	cmd := exec.Command("/proc/self/exe", runFrom, name, all[len(all)-1].Name)
	cmd.Stderr = os.Stderr
	answers, err := cmd.StdoutPipe()
	if err != nil {
		return 0, "", err
	}
	if err := cmd.Start(); err != nil {
		return 0, "", err
	}
	late := false
	timer := time.AfterFunc(maxAttemptTime, func() { late = true; _ = cmd.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewScanner(answers)
	for lines.Scan() {
		timer.Reset(maxAttemptTime)
		var a Answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return made, "", fmt.Errorf("%q: %w", lines.Text(), err)
		}
		if err := out.Encode(a); err != nil {
			return made, "", err
		}
		made++
	}
	err = cmd.Wait()
	switch exit, ok := errors.AsType[*exec.ExitError](err); {
	case err == nil:
		return made, "", nil
	case !ok:
		return made, "", err
	case late:
		return made, "", fmt.Errorf("an attempt after %s and %d more hangs", name, made)
	case exit.Exited():
		return made, "", fmt.Errorf("the program failed after %s and %d more: %w", name, made, err)
	default:
		return made, exit.String(), nil
	}
}
