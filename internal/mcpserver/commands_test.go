package mcpserver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/mcpserver"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestLongCommandsContinue(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			d := p.tenant(mcpserver.Options{})
			defer d.Close(context.Background())
			a := inMemory(t, d, mcpserver.View{}, version, nil)
			got := a.do("bash", args{"command": "echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo over; exit 4", "timeout_seconds": 0.5})
			if got.out["running"] != true || got.out["exit_code"] != nil {
				t.Fatalf("bash: got %+v", got)
			}
			id := got.out["process_id"]
			// On a slow machine it has not even begun by then.
			hosttest.Eventually(t, "the command prints", func() bool {
				return strings.HasPrefix(a.do("process", args{"action": "output", "id": id, "wait_seconds": 5}).text, "begun\n")
			})
			// Other calls do not wait for it, and its end does not undo their changes.
			a.do("bash", args{"command": "cd /usr"})
			a.do("write_file", args{"path": "/tmp/go", "content": ""})
			got = a.do("process", args{"action": "output", "id": id, "offset": 6, "wait_seconds": 20})
			for i := 0; got.out["exit_code"] == nil && i < 100; i++ {
				got = a.do("process", args{"action": "output", "id": id, "offset": got.out["next_offset"], "wait_seconds": 5})
			}
			if got.out["exit_code"] != 4.0 || got.out["running"] != false {
				t.Errorf("process: got %+v", got)
			}
			if pwd := a.do("bash", args{"command": "pwd"}); !strings.HasPrefix(pwd.text, "/usr\n") {
				t.Errorf("a command that ended later changed the state of the shell: %s", pwd.text)
			}

			// A background process does not keep the call waiting, and continues when the call
			// ends.
			got = a.do("bash", args{"command": "sleep 3000 & echo started"})
			if got.out["exit_code"] != 0.0 || got.out["running"] != true {
				t.Errorf("bash: got %+v", got)
			}

			got = a.do("bash", args{"command": "cat; echo end", "background": true})
			id = got.out["process_id"]
			a.do("process", args{"action": "input", "id": id, "input": "fed\n", "eof": true})
			// Earlier output is not mistaken for the output that marks the end.
			got = a.do("process", args{"action": "output", "id": id, "wait_seconds": 5})
			for i := 0; got.out["exit_code"] == nil && i < 100; i++ {
				got = a.do("process", args{"action": "output", "id": id, "offset": got.out["next_offset"], "wait_seconds": 5})
			}
			got = a.do("process", args{"action": "output", "id": id})
			if !strings.HasPrefix(got.text, "fed\nend\n") {
				t.Errorf("process: got %+v", got)
			}

			id = a.do("bash", args{"command": "sleep 300", "background": true}).out["process_id"]
			if got = a.do("process", args{"action": "kill", "id": id}); got.out["exit_code"] != 137.0 {
				t.Errorf("killed: %+v", got)
			}
			a.fail("no_input", "process", args{"action": "input", "id": waitingCommand(a), "input": "x"})
			if list := a.do("process", args{"action": "list"}); !strings.Contains(list.text, "sleep 300") {
				t.Errorf("process: got %s", list.text)
			}
		})
	}
}

// waitingCommand starts a command that waits and takes no input, and returns its number.
func waitingCommand(a *agent) any {
	return a.do("bash", args{"command": "sleep 300", "timeout_seconds": 0.2}).out["process_id"]
}

func TestProgress(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	for _, version := range versions {
		messages, started := make(chan string, 100), time.Now()
		d := p.tenant(mcpserver.Options{})
		defer d.Close(context.Background())
		a := inMemory(t, d, mcpserver.View{}, version, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { messages <- r.Params.Message },
		})
		// A client that did not ask for progress gets none.
		over := make(chan error, 2)
		wait := func(set ...func(*mcp.CallToolParams)) {
			got, err := a.try("bash", args{"command": "while [ ! -e /tmp/go ]; do sleep 0.05; done"}, set...)
			if err == nil && got.bad {
				err = errors.New(got.text)
			}
			over <- err
		}
		go wait()
		go wait(func(c *mcp.CallToolParams) { c.SetProgressToken("p") })
		var first string
		select {
		case first = <-messages:
		case err := <-over:
			t.Fatalf("%s: it ended before its first progress notification: %v", version, err)
		}
		a.do("write_file", args{"path": "/tmp/go", "content": ""})
		for range 2 {
			if err := <-over; err != nil {
				t.Errorf("%s: %v", version, err)
			}
		}
		// Progress is sent every 5 seconds, for one of the two.
		if limit := int(time.Since(started) / (5 * time.Second)); !strings.HasPrefix(first, "running for ") || len(messages)+1 > limit {
			t.Errorf("%s: %q and %d more, but at most %d were due", version, first, len(messages), limit)
		}
	}
}

func TestCancelEndsTheCommand(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	key, _ := p.key("k")
	for _, version := range versions {
		a := p.connectHTTP(key, "/mcp", version, nil)
		sandboxID := a.do("bash", args{"command": "rm -f /tmp/began"}).out["sandbox"].(string)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := a.CallTool(ctx, &mcp.CallToolParams{Name: "bash", Arguments: args{"command": "touch /tmp/began; exec sleep 7777"}})
			done <- err
		}()
		sb, err := p.local.Get(t.Context(), sandboxID)
		if err != nil {
			t.Fatal(err)
		}
		hosttest.Eventually(t, "the command runs", func() bool { return sb.Command("pgrep", "-f", "sleep 7777").Run() == nil })
		cancel()
		if err := <-done; err == nil {
			t.Errorf("%s: a canceled call has a result", version)
		}
		hosttest.Eventually(t, "the command is gone in "+version, func() bool { return sb.Command("pgrep", "-f", "sleep 7777").Run() != nil })
	}
}

func TestConcurrentCalls(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	key, _ := p.key("k")
	var wg sync.WaitGroup
	agents := []*agent{p.connectHTTP(key, "/mcp", "2025-06-18", nil), p.connectHTTP(key, "/mcp", "2025-11-25", nil), p.connectHTTP(key, "/mcp", "2026-07-28", nil)}
	sandboxes := make(chan any, 60)
	for i, a := range agents {
		for n := range 8 {
			wg.Go(func() {
				got, err := a.try("bash", args{"command": fmt.Sprintf("echo %d-%d", i, n)})
				if err != nil || got.bad || !strings.HasPrefix(got.text, fmt.Sprintf("%d-%d\n", i, n)) {
					t.Errorf("%d-%d: %v %s", i, n, err, got.text)
				}
				sandboxes <- got.out["sandbox"]
			})
		}
	}
	wg.Wait()
	close(sandboxes)
	seen := map[any]bool{}
	for b := range sandboxes {
		seen[b] = true
	}
	if len(seen) != 1 {
		t.Errorf("a key's sessions use %d default sandboxes", len(seen))
	}
	agents[0].do("write_file", args{"path": "n", "content": "0"})
	for range 10 {
		wg.Go(func() {
			// Each edit works on the result of the others, so that none is lost.
			if got, err := agents[0].try("edit_file", args{"path": "n", "edits": []any{args{"old": "0", "new": "0+"}}}); err != nil || got.bad {
				t.Errorf("edit_file: got %v %s", err, got.text)
			}
		})
	}
	wg.Wait()
	if got := agents[2].do("read_file", args{"path": "n"}); got.text != "0"+strings.Repeat("+", 10) {
		t.Errorf("edits were lost: %s", got.text)
	}
}

func TestBlockedRequestsAreReported(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	strict := []crannog.CreateOption{crannog.Level("strict"), crannog.Allow("example.org"), crannog.Timeout(time.Hour)}
	d := p.tenant(mcpserver.Options{Create: strict})
	defer d.Close(context.Background())
	a := inMemory(t, d, mcpserver.View{}, "2025-11-25", nil)
	const fetch = `python3 -c "
import urllib.request, sys
try: urllib.request.urlopen(sys.argv[1], timeout=10)
except Exception as e: print(type(e).__name__)
" %s`
	got := a.do("bash", args{"command": fmt.Sprintf(fetch, "http://blocked.example/x")})
	if !strings.Contains(got.text, "blocked by the policy; use request_access") || !strings.Contains(got.text, "blocked.example") || got.out["blocked"] == nil {
		t.Errorf("bash: got %+v", got)
	}
	if got = a.do("bash", args{"command": "true"}); got.out["blocked"] != nil {
		t.Errorf("another call's denials are reported: %+v", got)
	}

	none := p.tenant(mcpserver.Options{Create: []crannog.CreateOption{crannog.Net("none"), crannog.Timeout(time.Hour)}})
	defer none.Close(context.Background())
	a = inMemory(t, none, mcpserver.View{}, "2025-11-25", nil)
	if got = a.do("bash", args{"command": fmt.Sprintf(fetch, "http://blocked.example/x") + "; false"}); !strings.Contains(got.text, "blocked.example: this sandbox has no network") {
		t.Errorf("bash: got %+v", got)
	}
	a.fail("network_fixed", "request_access", args{"target": "blocked.example", "reason": "r"})
}
