package causeway_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// follower is a process of `crannog net log -f`.
type follower struct {
	t       testing.TB
	cmd     *exec.Cmd
	err     servetest.Output
	lines   chan string // closed when its output has ended
	printed []string
}

func follow(t testing.TB, a *environment, args ...string) *follower {
	t.Helper()
	f := &follower{t: t, lines: make(chan string, 1000)}
	f.cmd = exec.Command(program(t), append([]string{"net", "log", "-f", "--state", a.state}, args...)...)
	f.cmd.Stderr = &f.err
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.cmd.Process.Kill(); _, _ = io.Copy(io.Discard, out); _ = f.cmd.Wait() })
	go func() {
		defer close(f.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			f.lines <- in.Text()
		}
	}()
	return f
}

// awaitLine reads until a line contains all of the parts.
func (f *follower) awaitLine(parts ...string) {
	f.t.Helper()
	late := hosttest.Late()
	for {
		select {
		case line, more := <-f.lines:
			if !more {
				f.t.Fatalf("crannog net log ended without a line with %q: %q %s", parts, f.printed, f.err.String())
			}
			f.printed = append(f.printed, line)
			if contains(line, parts...) {
				return
			}
		case <-late:
			f.t.Fatalf("no line with %q; crannog net log printed %q %s", parts, f.printed, f.err.String())
		}
	}
}

// wait reads the remaining output and returns the exit code.
func (f *follower) wait() int {
	f.t.Helper()
	late := time.AfterFunc(hosttest.Patience(hosttest.Hang), func() { _ = f.cmd.Process.Kill() })
	defer late.Stop()
	for line := range f.lines {
		f.printed = append(f.printed, line)
	}
	_ = f.cmd.Wait() // its exit code shows it
	return f.cmd.ProcessState.ExitCode()
}

// Flow entries are shown as they happen and in order, until the sandbox ends or the reader leaves.
func TestNetLogFollows(t *testing.T) {
	need(t)
	t.Parallel()
	for name, environmentOf := range map[string]func() *environment{
		"in another process": func() *environment { return sharedEnvironment(t) },
		"through a server":   func() *environment { a, _, _ := serverEnvironment(t); return a },
	} {
		t.Run(name, func(t *testing.T) {
			a := environmentOf()
			up := a.web(t, 443, nil, "api.follow.test")
			b := a.newSandbox(t, "network: {unlisted: deny, hosts: [{host: api.follow.test, rules: [{id: read, methods: [GET], paths: [/open/*], do: allow}]}]}\n")
			id := b.ID()
			plain, denied, lines, interrupted := follow(t, a, id), follow(t, a, id, "--denied"), follow(t, a, id, "--json"), follow(t, a, id)
			// A follower is connected when it has printed the earlier entries: the attachment or,
			// with --denied, the sandbox's own probes.
			plain.awaitLine("link")
			lines.awaitLine(`"kind":"link"`)
			interrupted.awaitLine("link")
			b.must("curl -sS -m 300 https://api.follow.test/open/one")
			plain.awaitLine("allow  http", "GET https://api.follow.test/open/one", "rule=host:api.follow.test/read", "  200")
			b.must("curl -sS -m 300 https://api.follow.test/closed/two")
			plain.awaitLine("deny   http", "GET https://api.follow.test/closed/two", "  403")
			denied.awaitLine("deny   http", "GET https://api.follow.test/closed/two", "  403")
			b.must("curl -sS -m 300 https://api.follow.test/open/three")
			plain.awaitLine("allow  http", "GET https://api.follow.test/open/three")
			lines.awaitLine(`"path":"/open/three"`)

			// Ctrl-C ends one follower without an error; the others continue.
			interrupted.awaitLine("/open/three")
			if err := interrupted.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if code := interrupted.wait(); code != 0 || interrupted.err.String() != "" {
				t.Errorf("Ctrl-C: exit %d, %s", code, interrupted.err.String())
			}
			for _, f := range []*follower{plain, denied, lines} {
				if err := f.cmd.Process.Signal(syscall.Signal(0)); err != nil {
					t.Errorf("a follower ended with another's Ctrl-C: %v", err)
				}
			}
			b.end()
			for _, f := range []*follower{plain, denied, lines} {
				if code := f.wait(); code != 0 || f.err.String() != "" {
					t.Errorf("the end of the sandbox: exit %d, %s", code, f.err.String())
				}
			}
			for _, line := range denied.printed {
				if !contains(line, "  deny ") || contains(line, "/open/") {
					t.Errorf("--denied printed an allowed request: %s", line)
				}
			}
			var paths []string
			for _, line := range lines.printed {
				var r api.FlowRecord
				d := json.NewDecoder(strings.NewReader(line))
				d.DisallowUnknownFields()
				if err := d.Decode(&r); err != nil || r.Sandbox != id || r.Rule == "" || r.Time.IsZero() {
					t.Errorf("the line %s: got the entry %+v, %v", line, r, err)
				}
				if r.Kind == "http" {
					paths = append(paths, r.Effect+r.Path)
				}
			}
			if got := strings.Join(paths, " "); got != "allow/open/one deny/closed/two allow/open/three" {
				t.Errorf("the requests in --json: got %s", got)
			}
			if len(up.seen()) != 2 {
				t.Errorf("the fake internet got %d requests", len(up.seen()))
			}
		})
	}
}
