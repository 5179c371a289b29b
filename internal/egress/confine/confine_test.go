//go:build !race

// The race detector's runtime makes system calls and allocates memory that the confinement forbids.

package confine_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress/confine"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestMain(m *testing.M) {
	reexec.Dispatch(
		reexec.Role{Match: reexec.Arg0("confine-probe"), Run: probe},
		reexec.Role{Match: reexec.Arg0("confine-hog"), Run: allocateMemory},
		reexec.Role{Match: reexec.Arg0("confine-forgetful"), Run: skipStep},
	)
	os.Exit(m.Run())
}

// User ID to which root changes.
const nobody = 65534

// result is the outcome of each attempt, before and after the confinement.
type result struct {
	Before, After map[string]string
	WorkingCalls  map[string]string // the error of each operation that must still work, or ""
	Report        confine.Report
	// Starter is the user who started the process.
	Starter int
	// BornHidden reports whether the process was undumpable from its start.
	BornHidden bool
}

// testUser is the user that runs a role.
type testUser struct {
	name string
	attr *syscall.SysProcAttr
	// inside and outside are the final user, as the process and the host see it.
	inside, outside int
	unprivileged    bool // already before the confinement
	notes           int
}

var testUsers = []testUser{
	{name: "root", inside: nobody, outside: nobody},
	{name: "a user", inside: 1000, outside: 1000, unprivileged: true, attr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}},
	// A namespace with one user has no other user to which its root could change.
	{name: "the root of a namespace", inside: 0, outside: 1000, unprivileged: true, notes: 1, attr: &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		Credential:  &syscall.Credential{NoSetGroups: true},
		UidMappings: []syscall.SysProcIDMap{{HostID: 1000, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: 1000, Size: 1}},
	}},
}

// testProgram is the program that start runs.
var testProgram = "/proc/self/exe"

// start runs a role in a directory that every user may enter.
func start(t *testing.T, role string, attr *syscall.SysProcAttr, more ...string) (*exec.Cmd, io.WriteCloser, *bufio.Reader) {
	t.Helper()
	dir, err := os.MkdirTemp("", "confine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path, spool := filepath.Join(dir, "record"), filepath.Join(dir, "spool")
	record, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	listener, listenErr := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(err, listenErr, os.Chmod(dir, 0o777), os.Chmod(path, 0o666), os.Mkdir(spool, 0o700), os.Chmod(spool, 0o777),
		os.WriteFile(filepath.Join(dir, "readable"), []byte("canary"), 0o644)); err != nil {
		t.Fatal(err)
	}
	directory, err := os.Open(spool)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); record.Close(); directory.Close() })
	cmd := exec.Command(testProgram)
	cmd.Args = append([]string{role, dir, listener.Addr().String()}, more...)
	cmd.Env = []string{}
	cmd.ExtraFiles = []*os.File{record, directory}
	if role != "confine-hog" { // it ends with a page of stack traces
		cmd.Stderr = os.Stderr
	}
	cmd.SysProcAttr = attr
	in, err := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(err, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, in, bufio.NewReaderSize(out, 1<<20)
}

func TestConfinedProcessHasNoRights(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, w := range testUsers {
		t.Run(w.name, func(t *testing.T) {
			cmd, in, out := start(t, "confine-probe", w.attr)
			line, err := out.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			var got result
			if err := json.Unmarshal(line, &got); err != nil {
				t.Fatalf("the result of the probe is not JSON: %v: %s", err, line)
			}
			if got.Report.UID != w.inside || got.Report.Landlock == 0 || len(got.Report.Notes) != w.notes {
				t.Errorf("the report is %+v, want user %d, Landlock and %d notes", got.Report, w.inside, w.notes)
			}
			if want := map[bool]int{true: 0, false: w.inside}[w.inside == nobody]; got.Starter != want {
				t.Errorf("the reported starter is user %d, want %d", got.Starter, want)
			}
			if changes := w.inside == nobody; programRestarts && got.BornHidden != changes {
				t.Errorf("the process is undumpable since its start: %t, want %t", got.BornHidden, changes)
			}
			for _, a := range attempts {
				before, after := got.Before[a.name], got.After[a.name]
				// Control: without confinement the attempt succeeds. Otherwise the test would not
				// show that the confinement stops it.
				if absent := a.optional && strings.HasSuffix(before, unix.ENOSYS.Error()); absent {
					t.Logf("%s: this kernel does not have the call", a.name)
				} else if isRefusal(before) && (!a.privileged || !w.unprivileged) {
					t.Errorf("%s is refused without confinement too: %s", a.name, before)
				}
				if !isRefusal(after) {
					t.Errorf("%s is possible in spite of the confinement: %q", a.name, after)
				}
			}
			for name, problem := range got.WorkingCalls {
				if problem != "" {
					t.Errorf("%s does not work any more: %s", name, problem)
				}
			}
			if len(got.WorkingCalls) < 12 {
				t.Errorf("only %d operations were checked, want at least 12", len(got.WorkingCalls))
			}
			checkThreads(t, cmd.Process.Pid, w)
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// isRefusal reports whether an attempt failed because a right was missing. An attempt that failed
// after the kernel had executed the call is not refused. "" means success.
func isRefusal(text string) bool {
	return strings.HasPrefix(text, "refused: ")
}

// checkThreads inspects every thread as another process would.
func checkThreads(t *testing.T, pid int, w testUser) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil || len(threads) < 3 {
		t.Fatalf("the process has %d threads, want at least 3: %v", len(threads), err)
	}
	for _, thread := range threads {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, thread.Name()))
		if err != nil {
			continue // the thread has ended
		}
		status := string(data)
		for _, want := range []string{
			fmt.Sprintf("Uid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", w.outside), "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n",
			"CapInh:\t0000000000000000\n", "CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n", "Seccomp_filters:\t1\n",
		} {
			if !strings.Contains(status, want) {
				name, _, _ := strings.Cut(want, ":")
				_, have, _ := strings.Cut(status, "\n"+name+":")
				have, _, _ = strings.Cut(have, "\n")
				t.Errorf("thread %s: %s:%s, want %q", thread.Name(), name, have, want)
			}
		}
		// A process that had no privileges keeps its bounding set.
		if w.outside == nobody && (!strings.Contains(status, "CapBnd:\t0000000000000000\n") || !strings.Contains(status, "Groups:\t \n")) {
			t.Errorf("thread %s keeps a bounding set or groups", thread.Name())
		}
	}
	// The /proc files of a process that cannot be dumped belong to root: a debugger of the same
	// user is refused.
	var info unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/environ", pid), &info); err != nil || info.Uid != 0 && w.inside != 0 {
		t.Errorf("the process's /proc files belong to user %d, want root: %v", info.Uid, err)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Max core file size        0                    0 ", "Max open files            512                  512 ",
		"Max file size             65536                65536 "} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the process's limits lack %q:\n%s", want, data)
		}
	}
}

func TestTargetsFollowsSymlinks(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "run", "resolver")
	file := filepath.Join(deep, "conf")
	link, plain := filepath.Join(dir, "link"), filepath.Join(dir, "plain")
	if err := errors.Join(os.MkdirAll(deep, 0o700), os.WriteFile(file, nil, 0o600), os.WriteFile(plain, nil, 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	if got, want := confine.Targets(plain, link, "/no/such/file"), []string{plain, link, "/no/such/file", file, deep}; !slices.Equal(got, want) {
		t.Errorf("Targets = %v, want %v", got, want)
	}
	if err := errors.Join(os.Remove(link), os.Symlink("/usr/bin", link)); err != nil {
		t.Fatal(err)
	}
	if got := confine.Targets(link); slices.Contains(got, "/usr") {
		t.Errorf("Targets = %v, which makes all of /usr readable", got)
	}
}

func TestHardMemoryLimitEndsProcess(t *testing.T) {
	cmd, _, out := start(t, "confine-hog", nil)
	output, _ := io.ReadAll(out)
	err := cmd.Wait()
	if string(output) != "small\n" || err == nil {
		t.Fatalf("the process printed %q and ended with %v, want an end at the second allocation", output, err)
	}
}

func TestBeginRejectsZeroLimits(t *testing.T) {
	full := confine.Rules{UID: nobody, Files: 1, FileBytes: 1, SoftMemory: 1, HardMemory: 1}
	for name, change := range map[string]func(*confine.Rules){
		"files":       func(r *confine.Rules) { r.Files = 0 },
		"file bytes":  func(r *confine.Rules) { r.FileBytes = 0 },
		"soft memory": func(r *confine.Rules) { r.SoftMemory = 0 },
		"hard memory": func(r *confine.Rules) { r.HardMemory = 0 },
	} {
		rules := full
		change(&rules)
		if _, err := confine.Begin(rules, nil); err == nil {
			t.Fatalf("Begin accepted a zero limit of %s", name)
		}
	}
}
