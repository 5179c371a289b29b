// Package runner owns the program that runs one WebAssembly module. It reads and compiles the
// module, drops all rights that the module does not need, and runs it with WASI preview 1. It also
// compiles modules for other processes, and runs the worker of the code interpreter for JavaScript.
package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/host/reexec"
)

// Exit codes of the runner itself. They are those that shells and aborted processes use.
const (
	// CodeUsage is the exit code if the runner was started with wrong arguments.
	CodeUsage = 125
	// CodeInvalid is the exit code for a module that cannot be run.
	CodeInvalid = 126
	// CodeTrap is the exit code of a module that trapped.
	CodeTrap = 134
)

// MaxModule is the maximum size of a module.
const MaxModule = 64 << 20

// Role is the role of the runner. Each program that can be a runner must register it.
func Role() reexec.Role {
	return reexec.Role{Match: reexec.Arg0(guestboot.RunnerArg0), Run: func() { os.Exit(Main(os.Args[1:])) }}
}

// Main runs the program and returns its exit code.
func Main(args []string) int {
	if len(args) == 0 {
		return printError(CodeUsage, errors.New("only crannog starts this program"))
	}
	switch args[0] {
	case "run":
		r, err := parse(args[1:])
		if err != nil {
			return printError(CodeUsage, err)
		}
		return r.run()
	case "javascript":
		r, err := parseWorker(args[1:])
		if err != nil {
			return printError(CodeUsage, err)
		}
		return r.serve()
	case "compile":
		if err := compile(os.Stdin, os.Stdout); err != nil {
			return printError(CodeInvalid, err)
		}
		return 0
	}
	return printError(CodeUsage, fmt.Errorf("unknown role %q", args[0]))
}

// printError prints an error and returns the code.
func printError(code int, err error) int {
	_, _ = fmt.Fprintln(os.Stderr, "crannog:", err)
	return code
}

// request describes what to run.
type request struct {
	argv          []string
	memory        int64
	deterministic bool
	compiled      bool
	network       bool
	// module is the descriptor of the module. The next ones are those of the compiled module and of
	// the network, if there are any.
	module uintptr
}

// networkFile returns the descriptor of the network.
func (r request) networkFile() uintptr {
	if r.compiled {
		return r.module + 2
	}
	return r.module + 1
}

// parse parses the arguments of the command run.
func parse(args []string) (request, error) {
	r := request{module: guestboot.ModuleFD}
	for i, arg := range args {
		if arg == "--" {
			if r.argv = args[i+1:]; len(r.argv) == 0 {
				return r, errors.New("the module's name is missing")
			}
			return r, nil
		}
		if err := r.set(arg); err != nil {
			return r, err
		}
	}
	return r, errors.New("the module's arguments are missing")
}

// parseWorker parses the arguments of the command javascript.
func parseWorker(args []string) (request, error) {
	r := request{argv: []string{"QuickJS"}, module: guestboot.WorkerModuleFD}
	for _, arg := range args {
		if err := r.set(arg); err != nil {
			return r, err
		}
	}
	return r, nil
}

// set sets an option.
func (r *request) set(arg string) error {
	name, value, _ := strings.Cut(arg, "=")
	switch name {
	case "--memory":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n <= 0 {
			return fmt.Errorf("%s is not a number of bytes", arg)
		}
		r.memory = n
	case "--deterministic":
		r.deterministic = true
	case "--compiled":
		r.compiled = true
	case "--network":
		r.network = true
	default:
		return fmt.Errorf("unknown argument %q", arg)
	}
	return nil
}

// readModuleFile reads a whole module into memory, because the sandbox can change the file.
func readModuleFile(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := bytes.NewBuffer(make([]byte, 0, min(max(info.Size(), 0), MaxModule)+bytes.MinRead))
	_, err = data.ReadFrom(io.LimitReader(f, MaxModule+1))
	return data.Bytes(), checkModuleSize(data.Len(), err)
}

// readModule reads a whole module from a pipe.
func readModule(from io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, MaxModule+1))
	return data, checkModuleSize(len(data), err)
}

// checkModuleSize returns an error for a module that is too large, or that could not be read.
func checkModuleSize(size int, err error) error {
	if err == nil && size > MaxModule {
		err = fmt.Errorf("the module is larger than %d bytes", MaxModule)
	}
	return err
}
