package quickjs_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/crannog/crannog/internal/engine/wasm/quickjs"
	"github.com/crannog/crannog/internal/host/embedded/quickjsbin"
)

// memory is the memory of the instances.
const memory = 64 << 20

// echo answers each operation with its arguments.
type echo struct{}

func (e echo) Call(operation string, arguments [][]byte) (quickjs.Result, error) {
	if operation == "fail" {
		return quickjs.Result{}, errors.New("ENOENT: no such file")
	}
	var all []byte
	for _, a := range arguments {
		all = append(all, a...)
	}
	return quickjs.Result{Data: all, Binary: operation == "bytes"}, nil
}

// start starts an instance and returns a function that evaluates code.
func start(t *testing.T) (*quickjs.VM, func(code string) (string, error)) {
	t.Helper()
	path, err := quickjsbin.Path(filepath.Join(t.TempDir(), "js"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(memory>>16))
	t.Cleanup(func() { r.Close(ctx) })
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	vm, err := quickjs.Define(ctx, r, echo{})
	if err != nil {
		t.Fatal(err)
	}
	module, err := r.InstantiateWithConfig(ctx, data, wazero.NewModuleConfig().WithName("").WithStartFunctions().WithRandSource(rand.Reader))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(vm.Start(module, memory), vm.Expose()); err != nil {
		t.Fatal(err)
	}
	functions, err := vm.Load(`({ run: (code) => String(host("eval", code, "<test>")), check: (code) => String(host("check", code, "<test>")) })`, "<main>", "run", "check")
	if err != nil {
		t.Fatal(err)
	}
	return vm, func(code string) (string, error) { return functions["run"].Call(code) }
}

// All subtests use one instance, because compiling the module takes seconds.
func TestQuickJS(t *testing.T) {
	vm, run := start(t)
	t.Run("code calls the host", func(t *testing.T) { checkHostCalls(t, run) })
	t.Run("an interrupt ends code", func(t *testing.T) { checkInterrupts(t, vm, run) })
	t.Run("rejections are reported", func(t *testing.T) { checkRejections(t, vm, run) })
	t.Run("memory is limited", func(t *testing.T) { checkMemory(t, run) })
}

func checkHostCalls(t *testing.T, run func(string) (string, error)) {
	for code, want := range map[string]string{
		`host("text", "ä😀", "\u0000b")`:                        "ä😀\x00b",
		`host("bytes", new Uint8Array([1, 2, 3])).join()`:      "1,2,3",
		`host("text", new Uint8Array([104, 105]).subarray(1))`: "i",
		`try { host("fail") } catch (e) { e.message }`:         "ENOENT: no such file",
		`try { host("text", 1) } catch (e) { e.name }`:         "Error",
		`try { host() } catch (e) { e.name }`:                  "Error",
		`host("check", "1 +", "f")`:                            "error",
		`host("check", "1 + 1", "f")`:                          "undefined",
	} {
		got, err := run(code)
		if want == "error" {
			var thrown *quickjs.Error
			if !errors.As(err, &thrown) || !strings.HasPrefix(thrown.Text, "SyntaxError") {
				t.Errorf("%s: got %q, %v, want a syntax error", code, got, err)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", code, got, err, want)
		}
	}
}

// Code that takes all memory gets an error, and the instance can be used afterwards.
func checkMemory(t *testing.T, run func(string) (string, error)) {
	for _, code := range []string{
		"const all = []; for (;;) all.push(new Uint8Array(1 << 20))", "'x'.repeat(1 << 29)", "let s = 'x'; for (;;) s += s",
		"new ArrayBuffer(1 << 30)", "(function f() { return [f()] })()", "JSON.parse('['.repeat(1e6))",
	} {
		_, err := run("(() => { " + code + " })()")
		var thrown *quickjs.Error
		if !errors.As(err, &thrown) {
			t.Errorf("%s: got %v, want an error of the code", code, err)
		}
	}
	if got, err := run("1 + 1"); got != "2" || err != nil {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}

// An interrupt ends a loop, which cannot catch it, and the instance keeps its state.
func checkInterrupts(t *testing.T, vm *quickjs.VM, run func(string) (string, error)) {
	if _, err := run("var kept = 1"); err != nil {
		t.Fatal(err)
	}
	vm.Interrupt()
	if _, err := run("try { for (;;); } catch { kept = 2 } finally { kept = 3 }"); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("a loop: %v", err)
	}
	if got, err := run("kept"); got != "1" || err != nil {
		t.Errorf("afterwards: %q, %v", got, err)
	}
	vm.Interrupt()
	vm.ForgetInterrupt()
	if got, err := run("let n = 0; while (n < 1e5) n++; n"); got != "100000" || err != nil {
		t.Errorf("after a forgotten interrupt: %q, %v", got, err)
	}
}

// Rejected promises are reported once, unless they get a handler in time.
func checkRejections(t *testing.T, vm *quickjs.VM, run func(string) (string, error)) {
	if _, err := run("Promise.reject(new Error('lost')); Promise.reject(1).catch(() => {}); 0"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Error: lost", ""} {
		if err := vm.RunJobs(); err != nil {
			t.Fatal(err)
		}
		got, err := vm.Unhandled()
		if strings.Join(got, "|") != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}
