// Package modules owns starting programs in a sandbox whose programs are WebAssembly modules: it
// starts the engine's runner with the module.
package modules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/relay"
)

// Config is the engine's configuration for the guest (guestboot.ModulesFlag).
type Config struct {
	// Program is the path of the runner inside.
	Program string `json:"program"`
	// Deterministic gives modules a fixed clock and fixed random numbers.
	Deterministic bool `json:"deterministic,omitempty"`
	// JavaScript is the path of the QuickJS module inside. It is "" if this build has none.
	JavaScript string `json:"javascript,omitempty"`
	// MemoryBytes limits the memory of each module.
	MemoryBytes int64 `json:"memory_bytes"`
}

// Argument returns the guest's command-line argument for c.
func (c Config) Argument() (string, error) {
	data, err := json.Marshal(c)
	return guestboot.ModulesFlag + string(data), err
}

// ErrOnly is returned for programs that are not WebAssembly modules.
var ErrOnly = errors.New("this sandbox runs WebAssembly modules only; use another engine for other programs, as crannog engines lists them")

// ErrTerminal is returned for requests of a terminal.
var ErrTerminal = errors.New("a WebAssembly module has no terminal; leave the terminal out (crannog run --no-tty)")

// Runner starts modules.
type Runner struct {
	// Gateway opens a connection to the egress gateway. It is nil in a sandbox without a network.
	Gateway func() (relay.Gateway, error)

	config  Config
	service int // guestboot.ServiceFD
}

// FromArguments returns the runner that the guest's arguments configure, or nil.
func FromArguments(args []string) (*Runner, error) {
	for _, arg := range args {
		text, found := strings.CutPrefix(arg, guestboot.ModulesFlag)
		if !found {
			continue
		}
		r := &Runner{service: guestboot.ServiceFD}
		if err := json.Unmarshal([]byte(text), &r.config); err != nil {
			return nil, fmt.Errorf("%s: %w", guestboot.ModulesFlag, err)
		}
		return r, nil
	}
	return nil, nil
}

// Start is the program that runs a module.
type Start struct {
	Path string
	Argv []string
	// Files are its descriptors, starting at guestboot.ModuleFD.
	Files []*os.File
}

// Close closes the guest's copies of the files.
func (s *Start) Close() {
	for _, f := range s.Files {
		_ = f.Close() // nothing was written
	}
}

// Find returns the path of the module that a command names, which may be a path or a name in PATH
// or the working directory. Searching the working directory adds no risk, because all of them are
// files of the sandbox, which only the runner reads.
func (r *Runner) Find(cmd, path, dir string) (string, error) {
	if strings.Contains(cmd, "/") {
		return absolute(cmd, dir), nil
	}
	for _, entry := range append(filepath.SplitList(path), dir) {
		name := filepath.Join(entry, cmd)
		if info, err := os.Stat(name); filepath.IsAbs(entry) && err == nil && info.Mode().IsRegular() {
			return name, nil
		}
	}
	return "", connect.NewError(connect.CodeNotFound, fmt.Errorf("command '%s' not found: %w", cmd, ErrOnly))
}

func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// Prepare opens the module with the rights of as, lets the engine compile it, and returns the
// runner to start.
func (r *Runner) Prepare(ctx context.Context, as func(func() error) error, path string, argv []string) (*Start, error) {
	var module *os.File
	err := as(func() (err error) {
		// O_NONBLOCK, because a pipe without a writer must not block the guest.
		module, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := check(module, argv[0]); err != nil {
		module.Close()
		return nil, err
	}
	start := r.start(ctx, "run", module)
	if err := r.connect(start); err != nil {
		start.Close()
		return nil, err
	}
	start.Argv = append(append(start.Argv, "--"), argv...)
	return start, nil
}

// start returns the runner in a role, with a module that it owns from then on.
func (r *Runner) start(ctx context.Context, role string, module *os.File) *Start {
	start := &Start{
		Path:  r.config.Program,
		Argv:  []string{guestboot.RunnerArg0, role, "--memory=" + strconv.FormatInt(r.config.MemoryBytes, 10)},
		Files: []*os.File{module},
	}
	if r.config.Deterministic {
		start.Argv = append(start.Argv, "--deterministic")
	}
	if compiled := r.compiled(ctx, module); compiled != nil {
		start.Argv = append(start.Argv, "--compiled")
		start.Files = append(start.Files, compiled)
	}
	return start
}

// errNoJavaScript is returned if the server that made the sandbox had no QuickJS module.
var errNoJavaScript = fault.New(fault.Unsupported, "language_not_installed",
	"This sandbox cannot run javascript: the program that made it does not contain QuickJS. Build crannog with make.")

// PrepareJavaScript returns the runner as a worker of the code interpreter for JavaScript. Its files
// start at guestboot.WorkerModuleFD.
func (r *Runner) PrepareJavaScript(ctx context.Context) (*Start, error) {
	if r.config.JavaScript == "" {
		return nil, errNoJavaScript
	}
	module, err := os.Open(r.config.JavaScript)
	if err != nil {
		return nil, err
	}
	return r.start(ctx, "javascript", module), nil
}

// IsRunner reports whether path is the runner's program.
func (r *Runner) IsRunner(path string) bool { return path == r.config.Program }

// Kinds of WebAssembly binaries, by their first bytes.
const (
	magic     = "\x00asm"
	module    = "\x01\x00\x00\x00"
	component = "\x0d\x00\x01\x00"
)

// check rejects files that are not modules before anything is started.
func check(f *os.File, cmd string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("command '%s' is not a file", cmd))
	}
	head := make([]byte, len(magic)+len(module))
	if _, err := f.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch string(head) {
	case magic + module:
		return nil
	case magic + component:
		return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("command '%s' is a WebAssembly component, and only modules for WASI preview 1 run here; build it for wasip1", cmd))
	}
	return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("command '%s' is not a WebAssembly module: %w", cmd, ErrOnly))
}
