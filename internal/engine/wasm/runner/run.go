package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

// pageBytes is the size of a page of a module's memory, and maxPages the number of pages that a
// module can address.
const (
	pageBytes = 64 << 10
	maxPages  = 1 << 16
)

// reservedMemory is the part of the sandbox's memory that is reserved for the runner, the guest and
// the sandbox's files. In a small sandbox, half of the memory is reserved.
const reservedMemory = 256 << 20

// pages returns the number of pages that a module may have.
func pages(memory int64) uint32 {
	return uint32(min(max((memory-min(reservedMemory, memory/2))/pageBytes, 1), maxPages))
}

// run runs the module and returns the exit code.
func (r request) run() int {
	ctx := withLinearMemory(context.Background())
	net, err := r.openNetwork()
	if err != nil {
		return printError(CodeInvalid, err)
	}
	defer net.close()
	tree, err := openTree(r.deterministic)
	if err != nil {
		return printError(CodeInvalid, err)
	}
	if err := confine(tree.paths()); err != nil {
		return printError(CodeInvalid, err)
	}
	runtime, compiled, small, err := r.load(ctx)
	if err == nil {
		err = r.provideImports(ctx, runtime, compiled, net)
	}
	if err != nil {
		return printError(CodeInvalid, fmt.Errorf("%s: %w", r.argv[0], err))
	}
	config, err := r.configure(tree)
	if err != nil {
		return printError(CodeInvalid, err)
	}
	endLoad(small)
	// From here on, the module's code runs. No memory becomes executable after this.
	if err := refuseNewCode(); err != nil {
		return printError(CodeInvalid, err)
	}
	module, err := runtime.InstantiateModule(ctx, compiled, config)
	if err != nil {
		return r.exitCode(err, CodeInvalid)
	}
	start := module.ExportedFunction("_start")
	if start == nil {
		return printError(CodeInvalid, fmt.Errorf("%s exports no function _start: it is a library, not a program", r.argv[0]))
	}
	if _, err := start.Call(ctx); err != nil {
		return r.exitCode(err, CodeTrap)
	}
	return 0
}

// load compiles the module or loads its compiled form. It reports whether the module is small.
func (r request) load(ctx context.Context) (runtime wazero.Runtime, module wazero.CompiledModule, small bool, err error) {
	file := os.NewFile(r.module, "module")
	defer file.Close()
	if small, err = r.tuneCollector(file); err != nil {
		return nil, nil, small, err
	}
	cached := &store{}
	if r.compiled {
		compiled := os.NewFile(r.module+1, "compiled")
		defer compiled.Close()
		if cached, err = readStore(compiled); err != nil {
			return nil, nil, small, fmt.Errorf("read the compiled module: %w", err)
		}
		defer cached.close()
	}
	cache, err := cached.cache()
	if err != nil {
		return nil, nil, small, err
	}
	config := settings().WithCompilationCache(cache).WithMemoryLimitPages(pages(r.memory)).WithMemoryCapacityFromMax(true)
	runtime = wazero.NewRuntimeWithConfig(ctx, config)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, runtime); err != nil {
		return nil, nil, small, err
	}
	if r.compiled {
		if module = cached.load(ctx, runtime); module != nil {
			return runtime, module, small, nil
		}
	}
	data, err := readModuleFile(file)
	if err != nil {
		return nil, nil, small, err
	}
	module, err = runtime.CompileModule(ctx, data)
	return runtime, module, small, err
}

// provideImports provides the functions that the module imports in addition to those of WASI, and
// refuses a module with other imports.
func (r request) provideImports(ctx context.Context, runtime wazero.Runtime, m wazero.CompiledModule, net *network) error {
	usesHTTP := false
	for _, f := range m.ImportedFunctions() {
		switch module, name, _ := f.Import(); module {
		case wasi_snapshot_preview1.ModuleName:
		case httpModule:
			if r.deterministic {
				return fmt.Errorf("the module imports %s.%s, but a deterministic sandbox has no network", module, name)
			}
			usesHTTP = true
		default:
			return fmt.Errorf("the module imports %s.%s, but only WASI preview 1 and %s are available", module, name, httpModule)
		}
	}
	if !usesHTTP {
		return nil
	}
	return newHTTPHost(net).define(ctx, runtime)
}

// configure connects the module to the process's streams, variables and files.
func (r request) configure(tree *tree) (wazero.ModuleConfig, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	config := wazero.NewModuleConfig().WithName("").WithArgs(r.argv...).WithStartFunctions().
		WithStdout(os.Stdout).WithStderr(os.Stderr).WithFSConfig(tree.mounts(dir))
	// WASI has no working directory. Its C library reads the variable PWD instead.
	env := append(slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "PWD=") }), "PWD="+dir)
	slices.Sort(env)
	for _, pair := range env {
		if name, value, ok := strings.Cut(pair, "="); ok && name != "" {
			config = config.WithEnv(name, value)
		}
	}
	if r.deterministic {
		return fixed(config, os.Stdin), nil
	}
	return config.WithStdin(os.Stdin).WithSysWalltime().WithSysNanotime().WithSysNanosleep().WithRandSource(rand.Reader), nil
}

// exitCode returns the exit code of a module that did not return.
func (r request) exitCode(err error, code int) int {
	if exit, ok := errors.AsType[*sys.ExitError](err); ok {
		return int(exit.ExitCode() & 0xff)
	}
	return printError(code, fmt.Errorf("%s: %s", r.argv[0], firstLines(err.Error())))
}

// maxTrace is the maximum number of printed lines of a trap's stack trace.
const maxTrace = 12

// firstLines returns the first lines of a trap's message.
func firstLines(text string) string {
	lines := strings.SplitN(text, "\n", maxTrace+1)
	return strings.Join(lines[:min(len(lines), maxTrace)], "\n")
}

// fullReader is a reader that fills the buffer of each read, except at the end of the input.
type fullReader struct{ io.Reader }

// Read implements io.Reader.
func (r fullReader) Read(b []byte) (int, error) {
	n, err := io.ReadFull(r.Reader, b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, err
}
