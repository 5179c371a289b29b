package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestMain(m *testing.M) {
	reexec.Dispatch(
		reexec.Role{Match: reexec.Arg0("runner-probe"), Run: probe},
		reexec.Role{Match: reexec.Arg0("runner-nothing"), Run: func() { os.Exit(0) }},
	)
	os.Exit(m.Run())
}

// attempts lists actions that a module could perform if it took over the process.
var attempts = map[string]func(dir string) error{
	"run a program":      runProgram,
	"open a file":        func(string) error { return openFile("/etc/hostname", unix.O_RDONLY) },
	"open its memory":    func(string) error { return openFile("/proc/self/mem", unix.O_RDWR) },
	"open by descriptor": func(string) error { return openFile("/proc/self/fd/9", unix.O_RDWR) },
	"make a socket":      func(string) error { return closeFD(unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)) },
	"make a Unix socket": func(string) error { return closeFD(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)) },
	"dial":               dial,
	"signal another":     func(string) error { return unix.Kill(os.Getppid(), 0) },
	"trace":              func(string) error { return ignore(unix.PtraceAttach(1<<22-1), unix.ESRCH) },
	"make a process":     fork,
	"make a namespace":   func(string) error { return unix.Unshare(unix.CLONE_FS) },
	"change an owner":    func(dir string) error { return os.Chown(filepath.Join(dir, "own"), os.Getuid(), os.Getgid()) },
	"make a device": func(dir string) error {
		return ignore(unix.Mknod(filepath.Join(dir, "pipe"), unix.S_IFIFO|0o600, 0), unix.EEXIST)
	},
	"make code":      makeCode,
	"use io_uring":   func(string) error { return rawCall(unix.SYS_IO_URING_SETUP, unix.ENOSYS, unix.EFAULT, unix.EINVAL) },
	"use bpf":        func(string) error { return rawCall(unix.SYS_BPF, unix.EINVAL, unix.EFAULT, unix.E2BIG) },
	"another filter": func(string) error { return rawCall(unix.SYS_SECCOMP, unix.EINVAL, unix.EFAULT) },
}

// runProgram runs this program in a role that ends at once. Without a role, the program would run
// these tests and start itself again.
func runProgram(string) error {
	return (&exec.Cmd{Path: "/proc/self/exe", Args: []string{"runner-nothing"}}).Run()
}

// openFile opens and closes a file.
func openFile(path string, flag int) error {
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// closeFD closes a descriptor, unless there was an error.
func closeFD(fd int, err error) error {
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

// dial connects to a TCP port.
func dial(string) error {
	_, err := net.Dial("tcp", "127.0.0.1:1")
	return ignore(err, unix.ECONNREFUSED)
}

// fork creates a process.
func fork(string) error {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}

// makeCode maps executable memory.
func makeCode(string) error {
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err == nil {
		err = unix.Munmap(b)
	}
	return err
}

// ignore drops an error that shows that the kernel would have permitted the call.
func ignore(err error, permitted ...error) error {
	for _, r := range permitted {
		if errors.Is(err, r) {
			return nil
		}
	}
	return err
}

// rawCall makes a call with invalid arguments.
func rawCall(call uintptr, permitted ...error) error {
	_, _, errno := unix.Syscall(call, 99, 0, 0)
	return ignore(errno, permitted...)
}

// outcome holds the results of the attempts before and after the confinement.
type outcome struct{ Before, After, Works map[string]string }

// probe confines itself as a runner does.
func probe() {
	dir := os.Args[1]
	var o outcome
	try := func() map[string]string {
		results := map[string]string{}
		for name, attempt := range attempts {
			results[name] = text(attempt(dir))
		}
		return results
	}
	o.Before = try()
	err := confine([]string{dir})
	if err == nil {
		err = refuseNewCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	o.After = try()
	o.Works = map[string]string{
		"files":       text(os.WriteFile(filepath.Join(dir, "new"), []byte("x"), 0o600)),
		"directories": text(os.MkdirAll(filepath.Join(dir, "a/b"), 0o700)),
		"moves":       text(os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "a/b/moved"))),
		"links":       text(os.Symlink("x", filepath.Join(dir, "link"))),
		"removal":     text(os.RemoveAll(filepath.Join(dir, "a"))),
		"memory":      text(grow()),
	}
	if err := json.NewEncoder(os.Stdout).Encode(o); err != nil {
		os.Exit(1)
	}
}

// grow makes the Go runtime allocate memory and threads.
func grow() error {
	results := make(chan []byte)
	for range 50 {
		go func() { results <- bytes.Repeat([]byte("x"), 1<<20) }()
	}
	for range 50 {
		<-results
	}
	return nil
}

// text returns an error's text, or "".
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestConfineRemovesRights(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "own"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open("/etc/hostname")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args = []string{"runner-probe", dir}
	for range 7 {
		cmd.ExtraFiles = append(cmd.ExtraFiles, file) // among them number 9
	}
	var output strings.Builder
	cmd.Stderr = &output
	out, err := cmd.Output()
	var o outcome
	if err == nil {
		err = json.Unmarshal(out, &o)
	}
	if err != nil {
		t.Fatalf("the probe process failed: %v: %s", err, output.String())
	}
	for name := range attempts {
		// As a control, the attempt succeeds without the confinement.
		if o.Before[name] != "" {
			t.Errorf("%s fails even without the confinement: %s", name, o.Before[name])
		}
		if o.After[name] == "" {
			t.Errorf("%s is possible after the confinement", name)
		}
	}
	for name, problem := range o.Works {
		if problem != "" {
			t.Errorf("%s do not work after the confinement: %s", name, problem)
		}
	}
}

// compileModule compiles a module in this process.
func compileModule(t testing.TB, module []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := writeCompiled(module, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// tiny is a module whose function returns at once. trapping is one whose function traps.
var (
	tiny     = []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x07\x0a\x01\x06_start\x00\x00\x0a\x04\x01\x02\x00\x0b")
	trapping = []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x07\x0a\x01\x06_start\x00\x00\x0a\x05\x01\x03\x00\x00\x0b")
)

// This version of wazero accepts a store, and uses the compiled code only under its own key.
func TestStoreIsUsedByWazero(t *testing.T) {
	code := compileModule(t, trapping)
	run := func(change func(*store)) (loaded bool, err error) {
		known, err := readStore(fileOf(t, code))
		if err != nil {
			t.Fatal(err)
		}
		defer known.close()
		change(known)
		cache, err := known.cache()
		if err != nil {
			t.Fatal(err)
		}
		r := wazero.NewRuntimeWithConfig(t.Context(), settings().WithCompilationCache(cache).WithMemoryLimitPages(1))
		defer r.Close(context.Background())
		m := known.load(t.Context(), r)
		if m == nil {
			return false, nil
		}
		instance, err := r.InstantiateModule(t.Context(), m, wazero.NewModuleConfig().WithStartFunctions())
		if err != nil {
			t.Fatal(err)
		}
		_, err = instance.ExportedFunction("_start").Call(t.Context())
		return true, err
	}
	if loaded, err := run(func(*store) {}); !loaded || err == nil {
		t.Errorf("the stored module: loaded %t, %v; want its trap", loaded, err)
	}
	code = compileModule(t, tiny)
	if loaded, err := run(func(*store) {}); !loaded || err != nil {
		t.Errorf("the stored module: loaded %t, %v; its outline would trap", loaded, err)
	}
	for name, change := range map[string]func(*store){
		"another key":      func(s *store) { s.key[0] ^= 1 },
		"another outline":  func(s *store) { s.outline = bytes.Replace(s.outline, []byte("_start"), []byte("_other"), 1) },
		"another wazero":   func(s *store) { s.code = bytes.Replace(s.code, []byte("WAZEVO"), []byte("WAZEVX"), 1) },
		"a changed code":   func(s *store) { s.code = append(bytes.Clone(s.code[:len(s.code)-6]), "broken"...) },
		"a shortened code": func(s *store) { s.code = s.code[:len(s.code)/2] },
		"no outline":       func(s *store) { s.outline = nil },
	} {
		if loaded, err := run(change); loaded {
			t.Errorf("%s: it is loaded, and returns %v", name, err)
		}
	}
}

// An outline is a module with the same functions, and no code of them.
func TestOutline(t *testing.T) {
	short, err := outline(tiny)
	if err != nil {
		t.Fatal(err)
	}
	if want := bytes.Replace(tiny, []byte("\x0a\x04\x01\x02\x00\x0b"), []byte("\x0a\x05\x01\x03\x00\x00\x0b"), 1); !bytes.Equal(short, want) {
		t.Errorf("the outline is %q, want %q", short, want)
	}
	for _, bad := range []string{"", "\x00asm", "\x00asm\x01\x00\x00\x00\x0a", "\x00asm\x01\x00\x00\x00\x0a\x05\x01", "\x00asm\x01\x00\x00\x00\x0a\x01\x7f", "\x00asm\x01\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff"} {
		if short, err := outline([]byte(bad)); err == nil {
			t.Errorf("the module %q has the outline %q", bad, short)
		}
	}
}

// P87: a compiled module that is not complete is refused.
func TestStoreRefusesShortFiles(t *testing.T) {
	code := compileModule(t, tiny)
	for _, size := range []int{0, 1, len(key{}), len(key{}) + sizeBytes, len(key{}) + sizeBytes + 1} {
		if _, err := readStore(fileOf(t, code[:size])); err == nil {
			t.Errorf("a file of %d bytes is accepted as a compiled module", size)
		}
	}
	s, err := readStore(fileOf(t, code))
	if err != nil {
		t.Fatalf("the whole file: %v", err)
	}
	s.close()
}

// fileOf returns an open file with a content.
func fileOf(t *testing.T, content []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "compiled")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A memory of a module is reserved as a whole, so that it never moves, and is not part of Go's heap.
func TestLinearMemory(t *testing.T) {
	const most = 1 << 30
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := &linearMemory{most: most}
	defer m.Free()
	first := m.Reallocate(pageBytes)
	first[0] = 1
	grown := m.Reallocate(most)
	if len(first) != pageBytes || len(grown) != most || &first[0] != &grown[0] || grown[0] != 1 {
		t.Errorf("grown from %d to %d bytes: the memory moved or lost its content", len(first), len(grown))
	}
	if m.Reallocate(most+1) != nil {
		t.Error("the memory grew beyond its maximum")
	}
	if runtime.ReadMemStats(&after); after.HeapAlloc > before.HeapAlloc+most/2 {
		t.Errorf("the heap grew from %d to %d bytes", before.HeapAlloc, after.HeapAlloc)
	}
	if empty := (&linearMemory{}).Reallocate(0); empty == nil || len(empty) != 0 {
		t.Errorf("a memory without pages is %v", empty)
	}
}

func TestParse(t *testing.T) {
	r, err := parse([]string{"--memory=100", "--deterministic", "--compiled", "--", "p", "--memory=x"})
	if err != nil || r.memory != 100 || !r.deterministic || !r.compiled || len(r.argv) != 2 {
		t.Errorf("the arguments are parsed as %+v, %v; want all settings and two arguments", r, err)
	}
	for _, args := range [][]string{nil, {"--"}, {"--memory=-1", "--", "p"}, {"--memory=x", "--", "p"}, {"p"}} {
		if r, err := parse(args); err == nil {
			t.Errorf("the arguments %q are accepted as %+v", args, r)
		}
	}
	if pages(1) != 1 || pages(256<<20) != 2048 || pages(1<<40) != maxPages {
		t.Errorf("pages: %d %d %d", pages(1), pages(256<<20), pages(1<<40))
	}
}

// No module makes the compiler panic. It compiles each module or returns an error.
func FuzzModule(f *testing.F) {
	f.Add(tiny)
	f.Add(trapping)
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x63\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, module []byte) {
		ctx := t.Context()
		r := wazero.NewRuntimeWithConfig(ctx, settings().WithMemoryLimitPages(16))
		defer r.Close(context.Background())
		_, _ = outline(module) // it may not panic either
		compiled, err := r.CompileModule(ctx, module)
		if (compiled == nil) == (err == nil) {
			t.Errorf("the compiler returned the module %v and the error %v, want one of them", compiled, err)
		}
	})
}
