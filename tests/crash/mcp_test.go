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

func connected(t *testing.T, transport mcp.Transport) agent {
	t.Helper()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the server may be dead
	return agent{t, s}
}

// do calls a tool that must succeed.
func (a agent) do(tool string, in map[string]any) string {
	a.t.Helper()
	r, err := a.CallTool(a.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: in})
	if err != nil {
		a.t.Fatal(err)
	}
	text := r.Content[0].(*mcp.TextContent).Text
	if r.IsError {
		a.t.Fatalf("%s: %s", tool, text)
	}
	return text
}

type args = map[string]any

// tools starts "crannog mcp" and returns a function that kills it.
func tools(t *testing.T, state string, flags ...string) (agent, func()) {
	t.Helper()
	cmd := exec.Command(program, append([]string{"mcp", "--state", state, "--no-workspace"}, flags...)...)
	cmd.Env = append(os.Environ(), "CRANNOG_URL=", "CRANNOG_KEY=")
	cmd.Stderr = t.Output()
	a := connected(t, &mcp.CommandTransport{Command: cmd})
	return a, func() {
		_ = cmd.Process.Kill()
		_ = a.Close() // it waits for the process
	}
}

func listed(t *testing.T, state string) []api.Sandbox {
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

// P8: tools that were killed leave none of their sandboxes to the next ones, and a named one with
// all its content.
func TestKilledTools(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Bash)
	state := t.TempDir()
	first, kill := tools(t, state)
	first.do("bash", args{"command": "sleep 600 > /dev/null 2>&1 & echo up"})
	first.do("sandbox", args{"action": "create"})
	first.do("fork", args{})
	if servetest.Processes(t, state) == 0 || len(listed(t, state)) != 3 {
		t.Fatalf("control: %+v", listed(t, state))
	}
	kill()
	kept, killKept := tools(t, state, "--name", "dev")
	kept.do("bash", args{"command": "cd /usr; X=7; echo precious > /tmp/file"})
	if list := listed(t, state); len(list) != 1 || list[0].Name != "dev" {
		t.Errorf("the next start left %+v", list)
	}
	killKept()
	again, killAgain := tools(t, state, "--name", "dev")
	if got := again.do("bash", args{"command": "pwd; echo $X; cat /tmp/file"}); got != "/usr\n7\nprecious\n" {
		t.Errorf("taken up again: %q", got)
	}
	again.do("sandbox", args{"action": "stop"})
	killAgain()
	servetest.NothingLeft(t, state)
}

// A sandbox that tools on this machine created at a server has a short end of its own, so that it
// is removed when the tools were killed.
func TestKilledToolsOfAServer(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Bash)
	state := t.TempDir()
	s := servetest.Start(t, program, state)
	a, kill := tools(t, state)
	a.do("bash", args{"command": "true"})
	a.do("sandbox", args{"action": "create"})
	kill()
	list, err := s.Local(t).List(t.Context(), crannog.ListOptions{})
	if err != nil || len(list) != 2 {
		t.Fatalf("control: %+v %v", list, err)
	}
	for _, info := range list {
		if info.EndsAt == nil || time.Until(*info.EndsAt) > 5*time.Minute {
			t.Errorf("%s ends at %v", info.ID, info.EndsAt)
			continue
		}
		// Its end, moved forward: there is no session to extend it.
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

// over connects to a server's tools.
func over(t *testing.T, s *servetest.Server) agent {
	t.Helper()
	return connected(t, &mcp.StreamableClientTransport{
		Endpoint: s.URL + "/mcp", HTTPClient: &http.Client{Transport: shows(s.Key)}, DisableStandaloneSSE: true, MaxRetries: -1,
	})
}

// shows is a key that is sent with each request.
type shows string

func (key shows) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(key))
	return http.DefaultTransport.RoundTrip(r)
}

// P8: a server that was killed under agents finds each one's sandbox again, and has exactly one for
// each, at whatever moment it was created.
func TestKilledUnderAgents(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Bash)
	state := t.TempDir()
	s := servetest.Start(t, program, state)
	a := over(t, s)
	a.do("bash", args{"command": "cd /usr; X=7"})
	a.do("bash", args{"command": "while [ ! -e /tmp/stop ]; do sleep 0.1; done; echo over > /tmp/over", "background": true})
	s.Kill()
	s = servetest.Start(t, program, state)
	a = over(t, s)
	if got := a.do("bash", args{"command": "pwd; echo $X; touch /tmp/stop; while [ ! -e /tmp/over ]; do sleep 0.1; done; cat /tmp/over"}); got != "/usr\n7\nover\n" {
		t.Errorf("after the server's death: %q", got)
	}
	a.do("sandbox", args{"action": "stop"})
	for i := range 8 {
		a := over(t, s)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			// It fails or succeeds, depending on the kill.
			_, _ = a.CallTool(t.Context(), &mcp.CallToolParams{Name: "bash", Arguments: args{"command": "true"}})
		}()
		time.Sleep(time.Duration(i) * 20 * time.Millisecond) // another moment of the creation each time
		s.Kill()
		<-ended
		s = servetest.Start(t, program, state)
		a = over(t, s)
		a.do("bash", args{"command": "true"})
		list, err := s.Local(t).List(t.Context(), crannog.ListOptions{})
		if err != nil || len(list) != 1 {
			t.Errorf("killed after %d steps: %+v %v", i, list, err)
		}
		a.do("sandbox", args{"action": "stop"})
	}
	list, err := s.Local(t).List(t.Context(), crannog.ListOptions{States: []string{"all"}})
	if err != nil || slices.ContainsFunc(list, func(i api.Sandbox) bool { return i.State != "stopped" }) {
		t.Errorf("left: %+v %v", list, err)
	}
	servetest.NothingLeft(t, state)
	s.Stop(t)
	if strings.Contains(s.Stderr(), "panic") {
		t.Error(s.Stderr())
	}
}
