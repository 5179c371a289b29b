package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/crannog/crannog"
)

const (
	nameModule      = "hello in a live wasm sandbox"
	nameNodeWASI    = "hello by node:wasi, no sandbox"
	nameInstantiate = "instantiate a compiled module, no process"
)

// nodeWASI runs the module that its argument names.
const nodeWASI = `const {WASI} = require("node:wasi");
const wasi = new WASI({version: "preview1", args: ["hello"]});
WebAssembly.instantiate(require("fs").readFileSync(process.argv[1]), wasi.getImportObject()).then(({instance}) => process.exit(wasi.start(instance)));`

// wasmFigures compares a program in Go for WASI, in a live sandbox of the engine wasm, with the same
// program in Node.js without a sandbox.
func wasmFigures(ctx context.Context, b *bench) (err error) {
	path := filepath.Join(b.dir, "hello.wasm")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./bench/testdata/hello")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build a module: %w: %s", err, bytes.TrimSpace(out))
	}
	module, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	srv, err := b.serve(ctx, b.crannog, "wasm", "--pool", "off")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close()) }()
	sb, err := srv.client.Create(ctx, crannog.Engine("wasm"), crannog.Level("light"), crannog.Timeout(10*time.Minute))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Kill(ctx)) }()
	if err := sb.FS().WithContext(ctx).WriteFile("tmp/hello.wasm", module, 0o644); err != nil {
		return err
	}
	all := []contender{byCall(nameModule, sb, "/tmp/hello.wasm")}
	if found("node") {
		all = append(all, bare(nameNodeWASI, "node", "--no-warnings", "-e", nodeWASI, path))
	}
	s, err := race(ctx, b.n, all...)
	if err != nil {
		return err
	}
	sec := table("wasm", "a program in Go for WASI that prints a line, through POST /v1/…/exec", "ms", s)
	if sec.against(nameNodeWASI); sec.find(nameNodeWASI) != nil {
		sec.target(nameModule, "≤ 2.00× "+nameNodeWASI, func(r row) bool { return r.Ratio <= 2 })
	} else {
		sec.note("node is not installed, so its row is missing")
	}
	sec.note("Node compiles the module at each start, at first without optimisation. The server has compiled it once.")
	b.report.add(sec)
	return b.instantiateFigures(ctx, module)
}

// instantiateFigures measures an instance of a compiled module in this process, with the runtime
// that the engine uses.
func (b *bench) instantiateFigures(ctx context.Context, module []byte) (err error) {
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	defer func() { err = errors.Join(err, r.Close(ctx)) }()
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r); err != nil {
		return err
	}
	compiled, err := r.CompileModule(ctx, module)
	if err != nil {
		return err
	}
	config := wazero.NewModuleConfig().WithName("").WithArgs("hello").WithStdout(io.Discard).WithStartFunctions()
	s, err := race(ctx, b.n, contender{nameInstantiate, func(ctx context.Context, s *scores) error {
		began := time.Now()
		instance, err := r.InstantiateModule(ctx, compiled, config)
		s.addTime(nameInstantiate, time.Since(began))
		if err != nil {
			return err
		}
		return instance.Close(ctx)
	}})
	if err != nil {
		return err
	}
	sec := table("wasm", "an instance of the same module, without running it", "ms", s)
	sec.target(nameInstantiate, "≤ 1 ms", func(r row) bool { return r.P50 <= 1 })
	b.report.add(sec)
	return nil
}
