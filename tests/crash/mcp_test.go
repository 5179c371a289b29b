package crash_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// agent is a client of MCP tools.
type agent struct {
	t *testing.T
	*mcp.ClientSession
}

// connectAgent connects a client until the test ends.
func connectAgent(t *testing.T, transport mcp.Transport) agent {
	t.Helper()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the server may be dead
	return agent{t, s}
}

// callTool calls a tool that must succeed.
func (a agent) callTool(tool string, in map[string]any) string {
	a.t.Helper()
	r, err := a.CallTool(a.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: in})
	if err != nil {
		a.t.Fatal(err)
	}
	text := r.Content[0].(*mcp.TextContent).Text
	if r.IsError {
		a.t.Fatalf("the tool %s failed: %s", tool, text)
	}
	return text
}

type args = map[string]any

// startTools starts "crannog mcp" and returns a function that kills it.
func startTools(t *testing.T, state string, flags ...string) (agent, func()) {
	t.Helper()
	cmd := exec.Command(program, append([]string{"mcp", "--state", state, "--no-workspace"}, flags...)...)
	cmd.Env = append(os.Environ(), "CRANNOG_URL=", "CRANNOG_KEY=")
	cmd.Stderr = t.Output()
	a := connectAgent(t, &mcp.CommandTransport{Command: cmd})
	return a, func() {
		_ = cmd.Process.Kill()
		_ = a.Close() // waits for the process
	}
}

// listSandboxes returns the sandboxes in the output of "crannog ls".
func listSandboxes(t *testing.T, state string) []api.Sandbox {
	t.Helper()
	out, err := exec.Command(program, "ls", "--state", state, "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []api.Sandbox
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// P8: tools that were killed leave none of their sandboxes to the next ones, except a named one
// with all its content.
func TestKilledToolsLeaveOnlyNamedSandbox(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Bash)
	state := t.TempDir()
	first, kill := startTools(t, state)
	first.callTool("bash", args{"command": "sleep 600 > /dev/null 2>&1 & echo up"})
	first.callTool("sandbox", args{"action": "create"})
	first.callTool("fork", args{})
	if servetest.Processes(t, state) == 0 || len(listSandboxes(t, state)) != 3 {
		t.Fatalf("control: %+v", listSandboxes(t, state))
	}
	kill()
	named, killNamed := startTools(t, state, "--name", "dev")
	named.callTool("bash", args{"command": "cd /usr; X=7; echo precious > /tmp/file"})
	if list := listSandboxes(t, state); len(list) != 1 || list[0].Name != "dev" {
		t.Errorf("sandboxes after the next start: got %+v, want only dev", list)
	}
	killNamed()
	again, killAgain := startTools(t, state, "--name", "dev")
	if got := again.callTool("bash", args{"command": "pwd; echo $X; cat /tmp/file"}); got != "/usr\n7\nprecious\n" {
		t.Errorf("the named sandbox after a kill: got %q", got)
	}
	again.callTool("sandbox", args{"action": "stop"})
	killAgain()
	servetest.NothingLeft(t, state)
}

// TestKilledToolsSandboxesExpireAtServer checks that a sandbox that the tools created at a server
// has a short timeout, so that it ends if the tools are killed.
func TestKilledToolsSandboxesExpireAtServer(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Bash)
	state := t.TempDir()
	s := servetest.Start(t, program, state)
	a, kill := startTools(t, state)
	a.callTool("bash", args{"command": "true"})
	a.callTool("sandbox", args{"action": "create"})
	kill()
	list, err := s.Local(t).List(t.Context(), crannog.ListOptions{})
	if err != nil || len(list) != 2 {
		t.Fatalf("control: %+v %v", list, err)
	}
	for _, info := range list {
		if info.EndsAt == nil || time.Until(*info.EndsAt) > 5*time.Minute {
			t.Errorf("sandbox %s ends at %v, want within 5 minutes", info.ID, info.EndsAt)
			continue
		}
		// Shorten the timeout: no session extends it any more.
		sb, err := s.Local(t).Get(t.Context(), info.ID)
		if err == nil {
			err = sb.SetTimeout(t.Context(), time.Second)
		}
		if err != nil {
			t.Error(err)
		}
	}
	servetest.NothingLeft(t, state)
	s.Stop(t)
}

// connectOverHTTP connects to a server's tools.
func connectOverHTTP(t *testing.T, s *servetest.Server) agent {
	t.Helper()
	return connectAgent(t, &mcp.StreamableClientTransport{
		Endpoint: s.URL + "/mcp", HTTPClient: &http.Client{Transport: bearerKey(s.Key)}, DisableStandaloneSSE: true, MaxRetries: -1,
	})
}

// bearerKey adds a key to each request.
type bearerKey string

func (key bearerKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(key))
	return http.DefaultTransport.RoundTrip(r)
}

// P8: after a server was killed, the next one finds each agent's sandbox. An agent has exactly one
// sandbox, even if the server was killed while it was created.
func TestNextServerFindsAgentsSandbox(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Bash)
	state := t.TempDir()
	s := servetest.Start(t, program, state)
	a := connectOverHTTP(t, s)
	a.callTool("bash", args{"command": "cd /usr; X=7"})
	a.callTool("bash", args{"command": "while [ ! -e /tmp/stop ]; do sleep 0.1; done; echo done > /tmp/done", "background": true})
	s.Kill()
	s = servetest.Start(t, program, state)
	a = connectOverHTTP(t, s)
	if got := a.callTool("bash", args{"command": "pwd; echo $X; touch /tmp/stop; while [ ! -e /tmp/done ]; do sleep 0.1; done; cat /tmp/done"}); got != "/usr\n7\ndone\n" {
		t.Errorf("the agent's sandbox at the next server: got %q", got)
	}
	a.callTool("sandbox", args{"action": "stop"})
	for i := range 8 {
		a := connectOverHTTP(t, s)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			// The call fails or succeeds, depending on the kill.
			_, _ = a.CallTool(t.Context(), &mcp.CallToolParams{Name: "bash", Arguments: args{"command": "true"}})
		}()
		time.Sleep(time.Duration(i) * 20 * time.Millisecond) // kills at another moment of the creation each time
		s.Kill()
		<-ended
		s = servetest.Start(t, program, state)
		a = connectOverHTTP(t, s)
		a.callTool("bash", args{"command": "true"})
		list, err := s.Local(t).List(t.Context(), crannog.ListOptions{})
		if err != nil || len(list) != 1 {
			t.Errorf("sandboxes after kill %d: got %+v, %v, want 1", i, list, err)
		}
		a.callTool("sandbox", args{"action": "stop"})
	}
	list, err := s.Local(t).List(t.Context(), crannog.ListOptions{States: []string{"all"}})
	if err != nil || slices.ContainsFunc(list, func(i api.Sandbox) bool { return i.State != "stopped" }) {
		t.Errorf("sandboxes that are not stopped: %+v %v", list, err)
	}
	servetest.NothingLeft(t, state)
	s.Stop(t)
	if strings.Contains(s.Stderr(), "panic") {
		t.Error(s.Stderr())
	}
}
