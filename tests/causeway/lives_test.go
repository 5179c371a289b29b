package causeway_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// P7: if a server is killed, its sandboxes keep their network, and the next server takes them over
// with their access.
func TestKilledServerKeepsNetworks(t *testing.T) {
	need(t)
	t.Parallel()
	a, s, path := serverEnvironment(t)
	up := a.web(t, 443, serveStream, "api.kill.test")
	a.web(t, 443, nil, "late.kill.test")
	rules := "network: {unlisted: deny, hosts: [{host: api.kill.test, rules: [{methods: [GET], do: allow}]}%s]}\n"
	b := a.newSandbox(t, fmt.Sprintf(rules, ""))
	b.must("(python3 -c 'import sys; sys.path.insert(0, \"/tmp\"); from tools import *\n" +
		"c = tls(\"api.kill.test\"); c.sendall(b\"GET /stream HTTP/1.1\\r\\nHost: api.kill.test\\r\\n\\r\\n\")\n" +
		"while True:\n    part = c.recv(4096)\n    if not part: break\n    open(\"/tmp/stream\", \"ab\").write(part)\n" +
		"' >/dev/null 2>&1 &) ; (while :; do curl -sS -m 300 https://api.kill.test/ >>/tmp/got 2>>/tmp/failed; sleep 0.05; done >/dev/null 2>&1 &) ; true")
	hosttest.Eventually(t, "the stream runs", func() bool { return len(up.seen()) > 3 })
	pid := servetest.CausewayPID(t, a.state)
	s.Kill()
	seen := len(up.seen())
	hosttest.Eventually(t, "requests go on without a server", func() bool { return len(up.seen()) > seen+3 })
	next := servetest.Start(t, path, a.state)
	a.client = next.Client(t)
	sb, err := a.client.Get(t.Context(), b.ID())
	if err != nil {
		t.Fatal(err)
	}
	b.Sandbox = sb
	if n := sb.Info().Network; !n.Attached || n.Lost || servetest.CausewayPID(t, a.state) != pid {
		t.Errorf("network %+v", n)
	}
	if failed := b.must("cat /tmp/failed 2>/dev/null; pgrep -c python3"); failed != "1" {
		t.Errorf("requests failed, or the stream ended: %s", failed)
	}
	runOneSandbox, two := b.must("wc -c < /tmp/stream"), ""
	hosttest.Eventually(t, "the stream continues", func() bool { two = b.must("wc -c < /tmp/stream"); return two != runOneSandbox })
	b.requireLines(b.python("print(reach('late.kill.test', 443), status(get('api.kill.test')))"), "no-name 200")
	if err := sb.SetAccess(t.Context(), accessOf(fmt.Sprintf(rules, ", {host: late.kill.test, rules: [{methods: [GET], do: allow}]}"))); err != nil {
		t.Fatal(err)
	}
	if got := b.line("print(status(get('late.kill.test')))"); got != "200" {
		t.Errorf("a host that the new server allowed: got %s, want 200", got)
	}
	// The next server notices if the gateway dies.
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the sandbox is shown as lost", func() bool {
		sb, err := a.client.Get(t.Context(), b.ID())
		if err != nil {
			t.Fatal(err)
		}
		return sb.Info().Network.Lost
	})
	b.requireLines(b.python("print(query('api.kill.test', 1, seconds=1) == '0/1', reach('api.kill.test', 443, 2) == 'open')"), "False False")
	b.end()
}

// stateFiles returns the files of a state directory, except those of an open database.
func stateFiles(t testing.TB, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil && !strings.HasSuffix(path, "-wal") && !strings.HasSuffix(path, "-shm") {
			files = append(files, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// P8: fifty sandboxes with networks leave no process, socket, file or goroutine, neither in this
// process nor in the gateway.
func TestFiftySandboxesLeaveNothing(t *testing.T) {
	need(t)
	w, err := newInternet()
	if err != nil {
		t.Fatal(err)
	}
	a := &environment{internet: w, state: hosttest.ShortDir(t)}
	a.client = local(t, a.state, w)
	closed := false
	t.Cleanup(func() {
		if !closed {
			a.client.Close()
		}
	})
	a.web(t, 443, nil, "api.leak.test")
	runOneSandbox := func() {
		sb, err := a.client.Create(t.Context(), crannog.Limits(small), crannog.Policy("policy: v1\nname: leak\n"+withJailLevel("network: {unlisted: deny, hosts: [{host: api.leak.test, rules: [{methods: [GET], do: allow}]}]}\n")))
		if err != nil {
			t.Fatal(err)
		}
		out, err := sb.CommandContext(t.Context(), "curl", "-sS", "-m", "300", "https://api.leak.test/").CombinedOutput()
		if err != nil || string(out) != "hello from api.leak.test" {
			t.Errorf("a request of one sandbox: got %v %s", err, out)
		}
		if err := sb.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	}
	counts := func() [4]int {
		runtime.GC()
		pid := servetest.CausewayPID(t, a.state)
		return [4]int{runtime.NumGoroutine(), len(hosttest.Descriptors(t, os.Getpid())), len(hosttest.Descriptors(t, pid)), servetest.Processes(t, a.state)}
	}
	for range 3 {
		runOneSandbox() // what the first sandbox creates for all is not a leak
	}
	var before [4]int
	hosttest.Eventually(t, "the counts are stable", func() bool { last := before; before = counts(); return last == before })
	files, pid := stateFiles(t, a.state), servetest.CausewayPID(t, a.state)
	done := make(chan struct{})
	for range 2 {
		go func() {
			for range 25 {
				runOneSandbox()
			}
			done <- struct{}{}
		}()
	}
	<-done
	<-done
	hosttest.EventuallyNoError(t, func() error {
		after := counts()
		// A few goroutines and files belong to pools of connections to the gateway.
		if after[0] > before[0]+6 || after[1] > before[1]+4 || after[2] > before[2]+4 || after[3] != before[3] {
			return fmt.Errorf("goroutines, files of this process, files of the gateway, processes: got %v, before %v; open files: %q", after, before, hosttest.Descriptors(t, os.Getpid()))
		}
		return nil
	})
	if servetest.CausewayPID(t, a.state) != pid {
		t.Error("the gateway was restarted")
	}
	for _, f := range stateFiles(t, a.state) {
		if dir := filepath.Dir(f); dir == "/run" || strings.HasPrefix(dir, "/causeway") || strings.HasPrefix(dir, "/workspaces") {
			if !strings.Contains(strings.Join(files, "\n"), f) {
				t.Errorf("a file is left: %s", f)
			}
		}
	}
	closed = true
	if err := a.client.Close(); err != nil {
		t.Error(err)
	}
	if err := awaitCauseway(a.state); err != nil {
		t.Error(err)
	}
	servetest.NothingLeft(t, a.state)
}
