package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/guest/guestboot"
)

const (
	nameRunner    = "the runner, no sandbox"
	nameWazero    = "hello by wazero run -cachedir, no sandbox"
	wazeroCommand = "github.com/tetratelabs/wazero/cmd/wazero"
	runnerProgram = "internal/host/embedded/wasmbin/bin/crannog-wasm" // make build makes it
	runnerMemory  = 512 << 20                                         // the default of a sandbox
)

// buildGo builds a Go program for the benchmark.
func buildGo(ctx context.Context, to, from string, env ...string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, from)
	build.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", from, err, bytes.TrimSpace(out))
	}
	return nil
}

// wasmStartFigures compares what one start of a module costs in the engine's runner and in wazero's
// own command, from which both load the module that was compiled before.
func (b *bench) wasmStartFigures(ctx context.Context, module string, wazero []string) error {
	compiled := filepath.Join(b.dir, "hello.compiled")
	if err := compileModule(ctx, module, compiled); err != nil {
		return err
	}
	usage := map[string]*scores{"ms": newScores(), "faults": newScores()}
	measure := func(name string, start func() (*exec.Cmd, func(), error)) contender {
		return contender{name, func(_ context.Context, s *scores) error {
			cmd, done, err := start()
			if err != nil {
				return err
			}
			defer done()
			out, err := cmd.Output()
			if err != nil {
				return fmt.Errorf("%v: %w", cmd.Args, err)
			}
			if string(out) != "ok\n" {
				return fmt.Errorf("%v printed %q", cmd.Args, out)
			}
			s.addTime(name, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
			used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			if !ok {
				return fmt.Errorf("no usage of %v", cmd.Args)
			}
			s.add(name+faultsSuffix, float64(used.Minflt))
			return nil
		}}
	}
	s, err := race(ctx, b.n,
		measure(nameRunner, func() (*exec.Cmd, func(), error) { return startRunner(ctx, module, compiled) }),
		measure(nameWazero, func() (*exec.Cmd, func(), error) {
			return exec.CommandContext(ctx, wazero[0], wazero[1:]...), func() {}, nil
		}))
	if err != nil {
		return err
	}
	for _, name := range []string{nameRunner, nameWazero} {
		for _, v := range s.by[name] {
			usage["ms"].add(name, v)
		}
		for _, v := range s.by[name+faultsSuffix] {
			usage["faults"].add(name, v)
		}
	}
	sec := table("wasm", "processor time of one start of the same module, compiled before", "ms", usage["ms"])
	sec.against(nameWazero)
	sec.target(nameRunner, "≤ 1.00× "+nameWazero, func(r row) bool { return r.Ratio <= 1 })
	b.report.add(sec)
	sec = table("wasm", "page faults of one start of the same module, compiled before", "faults", usage["faults"])
	sec.against(nameWazero)
	b.report.add(sec)
	return nil
}

// faultsSuffix names the scores of page faults within a race.
const faultsSuffix = " faults"

// compileModule compiles a module as the engine does.
func compileModule(ctx context.Context, module, to string) error {
	in, err := os.Open(module)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, runnerProgram, "compile")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, os.Stderr
	return cmd.Run()
}

// startRunner returns the command that the guest of a sandbox starts, and a function that closes its
// files.
func startRunner(ctx context.Context, module, compiled string) (*exec.Cmd, func(), error) {
	cmd := exec.CommandContext(ctx, runnerProgram)
	cmd.Args = []string{guestboot.RunnerArg0, "run", "--memory=" + strconv.Itoa(runnerMemory), "--compiled", "--", "hello"}
	closeFiles := func() {
		for _, f := range cmd.ExtraFiles {
			_ = f.Close() // nothing was written
		}
	}
	for _, path := range []string{module, compiled} {
		f, err := os.Open(path)
		if err != nil {
			closeFiles()
			return nil, nil, err
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	return cmd, closeFiles, nil
}
