package wasm_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// This test covers promise P59. All subtests use one sandbox with a workspace, and each checks a
// different feature.
func TestPrograms(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	binary, module := copyOfBinary(t), buildModule(t)
	workspace, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	for path, data := range map[string][]byte{
		filepath.Join(workspace, "prog.wasm"): module, filepath.Join(workspace, "text"): []byte("host"), secret: []byte("secret"),
		filepath.Join(workspace, "elf"): []byte("\x7fELF and more"), filepath.Join(workspace, "component.wasm"): []byte("\x00asm\x0d\x00\x01\x00"),
		filepath.Join(workspace, "broken.wasm"): []byte("\x00asm\x01\x00\x00\x00\x63\xff\xff\xff\xff\x0f"), filepath.Join(workspace, "empty.wasm"): emptyModule,
	} {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"up": "../etc/passwd", "proc": "../proc/self/mem", "absolute": "/etc/passwd", "host": secret} {
		if err := os.Symlink(target, filepath.Join(workspace, name)); err != nil {
			t.Fatal(err)
		}
	}
	e := open(binary, false)(t, t.TempDir())
	b := start(t, e, image(t, sandbox.ModuleTemplate, binary, module), "programs", func(s *engine.Spec) {
		s.Workspace, s.Limits.MemoryBytes = workspace, 256<<20
	})
	t.Run("streams, arguments and exit codes", func(t *testing.T) { checkPrograms(t, b) })
	t.Run("refusals", func(t *testing.T) { checkRefusals(t, b) })
	t.Run("escapes", func(t *testing.T) { checkEscapes(t, b) })
	t.Run("endless loop", func(t *testing.T) { checkLoop(t, b) })
	t.Run("memory", func(t *testing.T) { checkMemory(t, b) })
	t.Run("output", func(t *testing.T) {
		if r := b.run(t, "prog.wasm", "flood", "50000000"); len(r.out) != 50_000_000 || r.code != 0 {
			t.Errorf("50000000 bytes of output: got %d bytes, code %d, %q", len(r.out), r.code, r.err)
		}
	})
	if data, err := os.ReadFile(filepath.Join(workspace, "text")); err != nil || string(data) != "host" {
		t.Errorf("the host's file: %q %v", data, err)
	}
}

// checkPrograms checks arguments, files, input and exit codes.
func checkPrograms(t *testing.T, b *testSandbox) {
	for _, c := range []struct {
		argv []string
		want result
	}{
		{[]string{"prog.wasm", "args", "a b", "", "ü"}, result{out: "a b||ü\n"}},
		{[]string{"./prog.wasm", "exit", "7"}, result{code: 7}},
		{[]string{"/workspace/prog.wasm", "err", "x"}, result{err: "x\n"}},
		{[]string{"program", "env", "HOME"}, result{out: "/home/user\n"}},
		{[]string{"prog.wasm", "env", "PWD"}, result{out: "/workspace\n"}},
		{[]string{"prog.wasm", "read", "text"}, result{out: "host\n"}},
		{[]string{"prog.wasm", "write", "/tmp/new", "x"}, result{out: "written\n"}},
		{[]string{"prog.wasm", "read", "/tmp/new"}, result{out: "x\n"}},
		{[]string{"prog.wasm", "write", "text", "changed"}, result{out: "written\n"}},
		{[]string{"prog.wasm", "list", "/home"}, result{out: "user\n"}},
	} {
		got := b.run(t, c.argv...)
		got.status = ""
		if got != c.want {
			t.Errorf("%q: got %+v, want %+v", c.argv, got, c.want)
		}
	}
	if r := b.run(t, "prog.wasm", "trap"); r.code == 0 || !strings.Contains(r.err, "nil pointer") {
		t.Errorf("a trap: %+v", r)
	}
	// A program receives its input and the end of its input.
	request := command("prog.wasm", "upper")
	request.Stdin = nil
	p, err := b.begin(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	selector := &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Pid{Pid: p.pid}}
	input := &processpb.ProcessInput{Input: &processpb.ProcessInput_Stdin{Stdin: []byte("hello")}}
	_, err = b.api().SendInput(t.Context(), signed(&processpb.SendInputRequest{Process: selector, Input: input}))
	if err == nil {
		_, err = b.api().CloseStdin(t.Context(), signed(&processpb.CloseStdinRequest{Process: selector}))
	}
	if r, waited := p.wait(); err != nil || waited != nil || r.out != "HELLO" {
		t.Errorf("a program that reads its input returned %+v (input: %v, wait: %v), want HELLO", r, err, waited)
	}
}

// Features that WebAssembly does not have are refused by name, before anything runs.
func checkRefusals(t *testing.T, b *testSandbox) {
	terminal := command("prog.wasm")
	terminal.Pty = &processpb.PTY{Size: &processpb.PTY_Size{Cols: 80, Rows: 24}}
	for name, c := range map[string]struct {
		request *processpb.StartRequest
		code    connect.Code
		text    string
	}{
		"a terminal":       {terminal, connect.CodeUnimplemented, "no terminal"},
		"a host program":   {command("python3"), connect.CodeNotFound, "runs WebAssembly modules only"},
		"a native program": {command("./elf"), connect.CodeUnimplemented, "is not a WebAssembly module"},
		"the guest":        {command("/.crannog/crannog-guest"), connect.CodeUnimplemented, "is not a WebAssembly module"},
		"the runner":       {command("/.crannog/crannog-wasm", "compile"), connect.CodeUnimplemented, "is not a WebAssembly module"},
		"a component":      {command("component.wasm"), connect.CodeUnimplemented, "is a WebAssembly component"},
		"a directory":      {command("/workspace"), connect.CodePermissionDenied, "is not a file"},
		"missing":          {command("./none.wasm"), connect.CodeNotFound, "not found"},
	} {
		p, err := b.begin(t.Context(), c.request)
		if err == nil {
			p.cancel()
		}
		if connect.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v, want %s: %s", name, err, c.code, c.text)
		}
	}
	for _, name := range []string{"broken.wasm", "empty.wasm"} {
		if r := b.run(t, name); r.code != 126 || !strings.Contains(r.err, name) {
			t.Errorf("running %s returned %+v, want the code 126 and its name", name, r)
		}
	}
}

// No path leads out of the directories that a module can see.
func checkEscapes(t *testing.T, b *testSandbox) {
	// As controls, the same calls succeed in permitted places, and the guest itself can read the
	// targets.
	if r := b.run(t, "prog.wasm", "link", "text", "inside"); r.code != 0 {
		t.Fatalf("a link inside: %+v", r)
	}
	if r := b.run(t, "prog.wasm", "read", "inside"); r.code != 0 || r.out == "" {
		t.Fatalf("through a link inside: %+v", r)
	}
	if r := b.run(t, "prog.wasm", "read", "/etc/hostname"); r.code != 0 {
		t.Fatalf("a file of another directory, by its own path: %+v", r)
	}
	for _, argv := range [][]string{
		{"read", "up"}, {"read", "proc"}, {"read", "absolute"}, {"read", "host"}, {"write", "proc", "x"}, {"write", "up", "x"},
		{"read", "/proc/self/mem"}, {"read", "/workspace/../proc/self/maps"}, {"list", "/proc"}, {"list", "/sys"}, {"list", "/.crannog"},
		{"link", "/etc/passwd", "made"}, {"dial", "127.0.0.1:49983"}, {"exec", "/bin/program"}, {"exec", "/.crannog/crannog-guest"},
	} {
		if r := b.run(t, append([]string{"prog.wasm"}, argv...)...); r.code == 0 {
			t.Errorf("the module escapes with %v: %+v", argv, r)
		}
	}
	// A link that a module creates itself does not help either.
	if r := b.run(t, "prog.wasm", "link", "../proc/self/mem", "made"); r.code != 0 {
		t.Fatalf("the module cannot create a link: %+v", r)
	}
	for _, argv := range [][]string{{"read", "made"}, {"write", "made", "x"}} {
		if r := b.run(t, append([]string{"prog.wasm"}, argv...)...); r.code == 0 {
			t.Errorf("the module escapes through its own link with %v: %+v", argv, r)
		}
	}
}

// An endless loop can be ended by a signal and by its timeout.
func checkLoop(t *testing.T, b *testSandbox) {
	p, err := b.begin(t.Context(), command("prog.wasm", "loop"))
	if err != nil {
		t.Fatal(err)
	}
	if !p.stream.Receive() {
		t.Fatal(p.stream.Err())
	}
	for p.stream.Msg().GetEvent().GetData() == nil { // it runs
		if !p.stream.Receive() {
			t.Fatal(p.stream.Err())
		}
	}
	selector := &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Pid{Pid: p.pid}}
	if _, err := b.api().SendSignal(t.Context(), signed(&processpb.SendSignalRequest{Process: selector, Signal: processpb.Signal(syscall.SIGTERM)})); err != nil {
		t.Fatal(err)
	}
	if r, err := p.wait(); err != nil || !strings.Contains(r.status, "terminated") {
		t.Errorf("the loop ended with %+v, %v; want terminated", r, err)
	}
}

// A module can allocate memory up to its limit, and fails by itself beyond it. The sandbox
// continues.
func checkMemory(t *testing.T, b *testSandbox) {
	if r := b.run(t, "prog.wasm", "grow", "80000000"); r.code != 0 || r.out != "grown\n" {
		t.Errorf("within the limit: %+v", r)
	}
	if r := b.run(t, "prog.wasm", "grow", "1000000000"); r.code == 0 || !strings.Contains(r.err, "out of memory") {
		t.Errorf("beyond the limit: code %d, %.300q", r.code, r.err)
	}
	if r := b.run(t, "prog.wasm", "args", "alive"); r.out != "alive\n" {
		t.Errorf("afterwards: %+v", r)
	}
}

// In deterministic sandboxes, the same input gives the same output. In other sandboxes it does not.
func TestDeterministicSandboxesAgree(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	binary, module := copyOfBinary(t), buildModule(t)
	e := open(binary, false)(t, t.TempDir())
	fixed := func(id string) string {
		b := start(t, e, image(t, "wasm-deterministic", binary, module), id)
		r := b.run(t, "program", "same")
		if r.code != 0 {
			t.Fatalf("the deterministic program failed: %+v", r)
		}
		return r.out
	}
	one, two := fixed("one"), fixed("two")
	if one != two {
		t.Errorf("got\n%s\nand\n%s", one, two)
	}
	if !strings.HasPrefix(one, "2022-01-01T00:00:00.") || !strings.Contains(one, "\n1m30.") {
		t.Errorf("the clock: %s", one)
	}
	// As a control, without deterministic mode, random numbers differ.
	b := start(t, e, image(t, sandbox.ModuleTemplate, binary, module), "free")
	random := func() string { return b.run(t, "program", "random").out }
	if a, z := random(), random(); a == z || a == "" {
		t.Errorf("random numbers %q and %q", a, z)
	}
}
