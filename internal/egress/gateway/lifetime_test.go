package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// The process exits once it has neither sandboxes nor controllers, and not before.
func TestIdleProcessExits(t *testing.T) {
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	b := mustAttach(t, c, dir, "box1")
	c.Close()
	// A sandbox alone keeps it running, even after its idle time.
	flow, err := b.dial("raw.test", 7000)
	if err != nil {
		t.Fatal(err)
	}
	_ = flow.SetReadDeadline(time.Now().Add(linger + linger/2))
	if _, err := flow.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Fatalf("a process with a sandbox ended the flow: %v", err)
	}
	wantGet(t, b, "/hello", 200)
	again := mustConnect(t, dir, Options{})
	if again.Info().PID != c.Info().PID {
		t.Error("Connect started another process while one has a sandbox")
	}
	again.Close()
	b.Close()
	awaitEnd(t, dir)
	if left := processes(t, dir); len(left) > 0 {
		t.Errorf("processes %v run after the last sandbox has ended", left)
	}
}

func TestProcessExitsOnSIGTERM(t *testing.T) {
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	b := mustAttach(t, c, dir, "box1")
	wantGet(t, b, "/hello", 200)
	if err := unix.Kill(c.Info().PID, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	awaitEnd(t, dir)
	if _, err := b.lookup("api.test"); err == nil {
		t.Error("DNS queries are still answered")
	}
	records := readRecords(t, dir, "box1")
	if last := records[len(records)-1]; last.Kind != egress.KindLink {
		t.Errorf("the last flow entry is %+v, want the end of the attachment", last)
	}
}

func TestCommonVersion(t *testing.T) {
	for _, c := range []struct {
		a, b hello
		want int
	}{
		{hello{Oldest: 1, Version: 1}, hello{Oldest: 1, Version: 1}, 1},
		{hello{Oldest: 1, Version: 3}, hello{Oldest: 2, Version: 5}, 3},
		{hello{Oldest: 2, Version: 5}, hello{Oldest: 1, Version: 3}, 3},
		{hello{Oldest: 1, Version: 1}, hello{Oldest: 2, Version: 2}, 0},
		{hello{Oldest: 4, Version: 5}, hello{Oldest: 1, Version: 3}, 0},
		{hello{}, hello{Oldest: 1, Version: 1}, 0},
	} {
		if got := c.a.common(c.b); got != c.want {
			t.Errorf("common version of %+v and %+v: got %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// An upgraded program that finds an older process uses or replaces it.
func TestUpgradeReplacesIdleProcess(t *testing.T) {
	dir := newEnvironment(t)
	reach := func(about hello) (*Client, error) {
		own, err := openDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		c, err := connect(t.Context(), own, Options{}, about)
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return c, err
	}
	speak := func(about hello) {
		data, err := os.ReadFile(filepath.Join(dir, environmentFile))
		var w testEnvironment
		if err := errors.Join(err, json.Unmarshal(data, &w)); err != nil {
			t.Fatal(err)
		}
		w.About = &about
		writeEnvironment(t, dir, w)
	}
	old, newer, newest := hello{1, 1, "old"}, hello{1, 2, "newer"}, hello{2, 2, "newest"}
	speak(old)
	first, err := reach(old)
	if err != nil {
		t.Fatal(err)
	}
	b := mustAttach(t, first, dir, "box1")

	// The process has sandboxes. A program with a common version uses it, another one gets an
	// error.
	second, err := reach(newer)
	if err != nil || second.Info().PID != first.Info().PID {
		t.Fatalf("Connect with a common version: got %+v, %v, want the same process", second, err)
	}
	if list, err := second.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("List = %+v, %v, want one sandbox", list, err)
	}
	if _, err := reach(newest); fault.CodeOf(err) != "causeway_version" || fault.HintOf(err) == "" {
		t.Errorf("Connect without a common version: got %v, want causeway_version with a hint", err)
	}
	wantGet(t, b, "/hello", 200)

	// A connection of another client keeps the process running too.
	if err := first.Detach(t.Context(), "box1"); err != nil {
		t.Fatal(err)
	}
	if _, err := reach(newest); fault.CodeOf(err) != "causeway_version" {
		t.Errorf("Connect while other clients are connected: got %v, want causeway_version", err)
	}

	// A process without sandboxes and clients exits for the new one.
	first.Close()
	second.Close()
	speak(newest)
	third, err := reach(newest)
	if err != nil {
		t.Fatal(err)
	}
	if third.Info().PID == first.Info().PID || third.Info().Build != "newest" {
		t.Errorf("the process was not replaced: %+v", third.Info())
	}
}

// A call before hello, or after hello with an unsupported version, is not executed.
func TestCallsRequireHello(t *testing.T) {
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	b := mustAttach(t, c, dir, "box1")
	for name, about := range map[string]*hello{"no hello": nil, "another version": {99, 99, ""}} {
		p := rawPeer(t, dir)
		if about != nil {
			if err := p.call(t.Context(), callHello, about, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, call := range []string{callList, callDetach, callUpdate, callAdopt, callAttach} {
			if err := p.call(t.Context(), call, sandboxBody{Sandbox: "box1"}, nil); fault.CodeOf(err) != "causeway_protocol" {
				t.Errorf("%s: call %s: got %v, want causeway_protocol", name, call, err)
			}
		}
	}
	wantGet(t, b, "/hello", 200)
}

// The path of a state directory may be longer than the address of a socket.
func TestLongStateDirectory(t *testing.T) {
	short := newEnvironment(t)
	dir := filepath.Join(short, strings.Repeat("long", 20), strings.Repeat("path", 20))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(short, environmentFile))
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, environmentFile), data, 0o600)); err != nil {
		t.Fatal(err)
	}
	c := mustConnect(t, dir, Options{})
	b := mustAttach(t, c, dir, "box1")
	wantGet(t, b, "/hello", 200)
	b.Close()
	c.Close()
	awaitEnd(t, dir)
}

// Without root, everything works the same except the change of user.
func TestProcessRunsWithoutRoot(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir := newEnvironment(t)
	documents, err := json.Marshal(documents(t))
	if err := errors.Join(err, os.Chown(dir, 1000, 1000), os.Chown(filepath.Join(dir, environmentFile), 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"test-user", dir}
	cmd.Stdin = strings.NewReader(string(documents))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	out, err := cmd.Output()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, dirName, logName))
		t.Fatalf("the client of user 1000: %v: %s%s", err, out, log)
	}
	var info Info
	if err := json.Unmarshal(out, &info); err != nil {
		t.Fatalf("the output of the client is not JSON: %v: %s", err, out)
	}
	if r := info.Confinement; r.UID != 1000 || r.Capabilities || !r.Seccomp || r.Landlock == 0 || !r.NoNewPrivs || r.Dumpable {
		t.Errorf("the confinement is %+v, want user 1000 without any rights", r)
	}
}

func runAsUser() {
	c, err := Connect(context.Background(), os.Args[1], Options{Program: self})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	a := Attachment{Sandbox: "box1"}
	decodeErr := json.NewDecoder(os.Stdin).Decode(&a.Policy)
	var openErr error
	a.Record, openErr = os.OpenFile(filepath.Join(os.Args[1], "box1.ndjson"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	_, _, attachErr := c.Attach(context.Background(), a)
	list, listErr := c.List(context.Background())
	if err := errors.Join(decodeErr, openErr, attachErr, listErr); err != nil || len(list) != 1 {
		fmt.Println(err, list)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(c.Info())
}

// Past sandboxes leave no descriptors and goroutines in the controller.
func TestControllerLeavesNoResources(t *testing.T) {
	hosttest.Need(t, hosttest.Root) // to see what the process has open
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{Event: func(Event) {}})
	round := func() {
		b := mustAttach(t, c, dir, "box1")
		wantGet(t, b, "/hello", 200)
		other, err := Connect(t.Context(), dir, Options{Event: func(Event) {}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Adopt(t.Context(), "box1"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := other.Attach(t.Context(), Attachment{Sandbox: "box1", Policy: documents(t), Record: recordFile(t, dir, "box1")}); err == nil {
			t.Fatal("a sandbox was attached twice")
		}
		if err := c.Detach(t.Context(), "box1"); err != nil {
			t.Fatal(err)
		}
		other.Close()
		b.Close()
	}
	pid := c.Info().PID
	round()
	waitUntilSteady(t, "process", func() int { return descriptors(t, pid) })
	before, own, goroutines := descriptors(t, pid), descriptors(t, os.Getpid()), runtime.NumGoroutine()
	for range 20 {
		round()
	}
	// Flow files stay open until the test ends, two per round.
	hosttest.EventuallyAtMost(t, "descriptors of the process", before, func() int { return descriptors(t, pid) })
	hosttest.EventuallyAtMost(t, "descriptors of the controller", own, func() int { return descriptors(t, os.Getpid()) - 40 })
	hosttest.EventuallyAtMost(t, "goroutines of the controller", goroutines+2, runtime.NumGoroutine)
	entries, err := os.ReadDir(filepath.Join(dir, dirName))
	if err != nil || len(entries) != 4 {
		t.Errorf("the process's directory has the files %v, want 4: %v", entries, err)
	}
}

// descriptors returns the number of a process's descriptors. It ignores event descriptors, which a
// sandbox's own stack leaves in this process.
func descriptors(t testing.TB, pid int) int {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && target != "anon_inode:[eventfd]" {
			n++
		}
	}
	return n
}

// waitUntilSteady waits until a number no longer changes.
func waitUntilSteady(t testing.TB, what string, count func() int) {
	t.Helper()
	last, same := -1, 0
	hosttest.Eventually(t, what+" no longer changes", func() bool {
		n := count()
		if same++; n != last {
			last, same = n, 0
		}
		return same > 10
	})
}
