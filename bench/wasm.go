package main

import (
	"context"
	"errors"
	"io"
	"os"
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
// program in wazero's own command and in Node.js, both without a sandbox.
func wasmFigures(ctx context.Context, b *bench) (err error) {
	path := filepath.Join(b.dir, "hello.wasm")
	if err := buildGo(ctx, path, "./bench/testdata/hello", "GOOS=wasip1", "GOARCH=wasm"); err != nil {
		return err
	}
	program := filepath.Join(b.dir, "wazero")
	if err := buildGo(ctx, program, wazeroCommand); err != nil {
		return err
	}
	wazero := []string{program, "run", "-cachedir", filepath.Join(b.dir, "wazero-cache"), path}
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
	all := []contender{byCall(nameModule, sb, "/tmp/hello.wasm"), bare(nameWazero, wazero...)}
	if found("node") {
		all = append(all, bare(nameNodeWASI, "node", "--no-warnings", "-e", nodeWASI, path))
	}
	s, err := race(ctx, b.n, all...)
	if err != nil {
		return err
	}
	sec := table("wasm", "a program in Go for WASI that prints a line, through POST /v1/…/exec", "ms", s)
	sec.against(nameWazero)
	sec.target(nameModule, "≤ 2.00× "+nameWazero, func(r row) bool { return r.Ratio <= 2 })
	if sec.find(nameNodeWASI) == nil {
		sec.note("node is not installed, so its row is missing")
	}
	sec.note("Node compiles the module at each start, at first without optimisation. The server and wazero have compiled it once.")
	b.report.add(sec)
	if err := b.wasmStartFigures(ctx, path, wazero); err != nil {
		return err
	}
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
