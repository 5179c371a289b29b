package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// runTools starts "crannog mcp" as an agent would, calls work, and closes the connection as an
// agent would.
func runTools(t *testing.T, state string, work func(call func(tool string, in map[string]any) string), flags ...string) {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"mcp", "--no-workspace"}, flags...)...)
	cmd.Env = append(os.Environ(), "CRANNOG_STATE="+state)
	cmd.Stderr = t.Output()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	work(func(tool string, in map[string]any) string {
		t.Helper()
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: in})
		if err != nil {
			t.Fatal(err)
		}
		text := r.Content[0].(*mcp.TextContent).Text
		if r.IsError {
			t.Fatalf("the tool %s failed: %s", tool, text)
		}
		return text
	})
	if err := s.Close(); err != nil {
		t.Errorf("close the connection: %v", err)
	}
}

func listSandboxes(t *testing.T, state string) []api.Sandbox {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "ls", "--json")
	cmd.Env = append(os.Environ(), "CRANNOG_STATE="+state)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []api.Sandbox
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatalf("crannog ls --json: %v: %s", err, out)
	}
	return list
}

// TestToolsOverStandardIO checks that the sandbox of an agent ends with the MCP server, unless the
// sandbox has a name.
func TestToolsOverStandardIO(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Bash)
	state, err := os.MkdirTemp("", "cs")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(state)
	runTools(t, state, func(call func(string, map[string]any) string) {
		call("bash", map[string]any{"command": "cd /tmp; X=1"})
		if got := call("bash", map[string]any{"command": "pwd; echo $X"}); got != "/tmp\n1\n" {
			t.Errorf("bash printed %q, want the directory and variable of the previous call", got)
		}
		call("sandbox", map[string]any{"action": "create"})
		if n := len(listSandboxes(t, state)); n != 2 {
			t.Errorf("got %d sandboxes, want 2", n)
		}
	})
	if list := listSandboxes(t, state); len(list) != 0 {
		t.Errorf("got sandboxes %+v after the end, want none", list)
	}
	for _, want := range []string{"[no output]\n", "/usr\n"} {
		runTools(t, state, func(call func(string, map[string]any) string) {
			command := "pwd"
			if want != "/usr\n" {
				command = "cd /usr"
			}
			if got := call("bash", map[string]any{"command": command}); got != want {
				t.Errorf("bash printed %q, want %q", got, want)
			}
			call("sandbox", map[string]any{"action": "create"})
		}, "--name", "dev")
		list := listSandboxes(t, state)
		if len(list) != 1 || list[0].Name != "dev" || list[0].EndsAt != nil {
			t.Errorf("got sandboxes %+v, want only dev, without an end", list)
		}
	}
	runTools(t, state, func(call func(string, map[string]any) string) {
		if got := call("bash", map[string]any{"command": "pwd"}); got != "/usr\n" {
			t.Errorf("bash in the sandbox dev printed %q, want /usr", got)
		}
		call("sandbox", map[string]any{"action": "stop"})
	}, "--sandbox", "dev")
	if list := listSandboxes(t, state); len(list) != 0 {
		t.Errorf("got sandboxes %+v after the end, want none", list)
	}
	for _, flags := range []string{"--tools browser", "--approver me", "--sandbox a --name b", "--net some"} {
		cmd := exec.Command(binary, append([]string{"mcp"}, strings.Fields(flags)...)...)
		cmd.Env = append(os.Environ(), "CRANNOG_STATE="+state)
		if out, err := cmd.Output(); cmd.ProcessState.ExitCode() != 2 || len(out) > 0 {
			t.Errorf("crannog mcp %s: %v, output %q; want exit code 2 and no output", flags, err, out)
		}
	}
}
