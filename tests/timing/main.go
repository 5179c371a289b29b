// Command timing measures what a test run costs: it runs test programs, measures the processor time
// of all processes that they start, and reports the slowest tests and the total.
//
//	timing calibrate              measure the speed of this machine
//	timing test ARGS...           run "go test ARGS..."
//	timing step NAME COMMAND...   run a command that is one part of the tests
//	timing report [-budget N]     print what CRANNOG_TIMES holds, fail above the budget
//	timing exec PROGRAM ARGS...   for "go test -exec": run one test program
//
// CRANNOG_TIMES names the file to which all commands add their measurements.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// The main thread must start the children, because a child is killed when the thread that started
// it ends. The main thread ends only with the process.
func init() { runtime.LockOSThread() }

func main() {
	code, err := command(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "timing:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// command runs a command line and returns the exit code.
func command(args []string) (int, error) {
	log := timesLog(os.Getenv("CRANNOG_TIMES"))
	verb := ""
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	switch {
	case verb == "work" && len(args) == 0:
		return 0, work()
	case verb == "calibrate" && len(args) == 0:
		seconds, err := calibrate()
		if err != nil {
			return 1, err
		}
		return 0, log.add(entry{Kind: kindCalibration, Processor: seconds})
	case verb == "test":
		return test(log, args)
	case verb == "exec" && len(args) > 0:
		if err := restoreEnv(); err != nil {
			return 1, err
		}
		return runMeasured(log, currentPackage(), args)
	case verb == "step" && len(args) > 1:
		code, err := runMeasured(log, args[0], args[1:])
		if err == nil && code != 0 {
			fmt.Fprintf(os.Stdout, "FAIL\t%s\n", args[0])
		}
		return code, err
	case verb == "report":
		flags := flag.NewFlagSet("report", flag.ContinueOnError)
		budget := flags.Float64("budget", 0, "largest processor time of all tests, as a multiple of the calibration's")
		if err := flags.Parse(args); err != nil {
			return 2, err
		}
		return report(os.Stdout, log, *budget)
	}
	return 2, fmt.Errorf("usage: timing calibrate | test ARGS... | step NAME COMMAND... | report [-budget N]")
}

// runMeasured runs a command and adds its usage to the log.
func runMeasured(log timesLog, name string, args []string) (int, error) {
	r, err := run(args)
	if err != nil {
		return 1, err
	}
	return r.code, log.add(entry{Kind: kindProgram, Name: name, Processor: r.processor.Seconds(), Wall: r.wall.Seconds()})
}

// currentPackage returns the package of the test program, which "go test" starts in the package's
// directory.
func currentPackage() string {
	dir, err := os.Getwd()
	if err != nil {
		return "unknown"
	}
	for root := dir; root != "/"; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			name, _ := filepath.Rel(root, dir) // an error means that the paths have no common root
			return name
		}
	}
	return dir
}

// test runs "go test -json" with each test program below "timing exec", and prints the output of
// "go test".
func test(log timesLog, args []string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	// The go tool splits the value at spaces.
	if strings.ContainsAny(self, " '\"") {
		return 1, fmt.Errorf("the path of this program must have no spaces and quotes: %s", self)
	}
	cmd := exec.Command("go", slices.Concat([]string{"test", "-json", "-exec", self + " exec"}, args)...) //nolint:noctx // go test has its own time limit
	cmd.Env, cmd.Stderr = compilerEnv(os.Environ()), os.Stderr
	stream, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	p := newPrinter(os.Stdout, func(tests []entry) error { return log.add(tests...) })
	readErr := p.read(stream)
	waitErr := cmd.Wait()
	if readErr != nil {
		return 1, readErr
	}
	if waitErr != nil && cmd.ProcessState == nil {
		return 1, waitErr
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 || !p.failed {
		return code, nil
	}
	return 1, nil
}
