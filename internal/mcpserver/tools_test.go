package mcpserver_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/mcpserver"
	"github.com/crannog/crannog/internal/sandbox"
)

// pixel is a PNG of one pixel.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// step is one call and the text that its result contains.
type step struct {
	tool string
	in   args
	code string // of the error that it must be
	text string // must be in the text
	out  args   // must be in the structured result
}

var steps = []step{
	{tool: "bash", in: args{"command": "pwd; mkdir -p src sub; export A=1; B='two words'; f() { echo \"f $1\"; }; cd sub"}, text: "/workspace\n", out: args{"exit_code": 0.0, "running": false}},
	{tool: "bash", in: args{"command": "pwd; echo $A \"$B\"; f x; cd .."}, text: "/workspace/sub\n1 two words\nf x\n"},
	{tool: "bash", in: args{"command": "echo out; echo err >&2; exit 3"}, text: "[exit code 3]", out: args{"exit_code": 3.0, "stdout": "out\n", "stderr": "err\n"}},
	{tool: "bash", in: args{"command": "cat", "stdin": "from stdin"}, text: "from stdin"},
	{tool: "bash", in: args{"command": "cd 'sub'; printf 'a\\033[31mb\\r\\n'"}, text: "ab\n"},
	{tool: "bash", in: args{"command": "pwd", "cwd": "/tmp"}, text: "/tmp"},
	{tool: "bash", in: args{"command": "pwd"}, text: "/tmp"},
	{tool: "bash", in: args{"command": "kill -9 $$"}, out: args{"exit_code": 137.0}},
	{tool: "bash", in: args{"command": "echo ${A}"}, text: "1"},
	{tool: "python", in: args{"code": "x = 6 * 7\nprint('hi')\nx"}, text: "hi\n42", out: args{"exit_code": 0.0}},
	{tool: "python", in: args{"code": "x + 1"}, text: "43"},
	{tool: "python", in: args{"code": "1/0"}, text: "ZeroDivisionError", out: args{"exit_code": 1.0}},
	{tool: "write_file", in: args{"path": "src/a.go", "content": "package a\n\nfunc F() int { return 1 }\n"}, out: args{"created": true, "path": "/workspace/src/a.go"}},
	{tool: "write_file", in: args{"path": "/workspace/p.png", "base64": pixel, "mode": "0600"}, out: args{"created": true}},
	{tool: "write_file", in: args{"path": "x", "content": "a", "base64": "YQ=="}, code: "two_contents"},
	{tool: "write_file", in: args{"path": "x", "base64": "!"}, code: "invalid_base64"},
	{tool: "write_file", in: args{"path": "x", "content": "a", "mode": "4755"}, code: "invalid_mode"},
	{tool: "read_file", in: args{"path": "src/a.go"}, text: "func F() int", out: args{"first_line": 1.0, "last_line": 3.0, "truncated": false}},
	{tool: "read_file", in: args{"path": "src/a.go", "offset": 3, "limit": 1}, text: "func F() int", out: args{"first_line": 3.0}},
	{tool: "read_file", in: args{"path": "src/a.go", "offset": -1}, text: "func F", out: args{"first_line": 3.0}},
	{tool: "read_file", in: args{"path": "p.png"}, text: "image/png", out: args{"kind": "image"}},
	{tool: "read_file", in: args{"path": "/bin/sh"}, text: "is binary", out: args{"kind": "binary"}},
	{tool: "read_file", in: args{"path": "none"}, code: "not_found"},
	{tool: "read_file", in: args{"path": "src"}, code: "not_a_file"},
	{tool: "edit_file", in: args{"path": "src/a.go", "edits": []any{args{"old": "return 1", "new": "return 2"}}}, text: "+func F() int { return 2 }", out: args{"replacements": 1.0}},
	{tool: "edit_file", in: args{"path": "src/a.go", "edits": []any{args{"old": "return 1", "new": "x"}}}, code: "text_not_found"},
	{tool: "edit_file", in: args{"path": "p.png", "edits": []any{args{"old": "a", "new": "b"}}}, code: "not_text"},
	{tool: "list_files", in: args{}, text: "src/a.go"},
	{tool: "list_files", in: args{"glob": "*.go"}, text: "src/a.go"},
	{tool: "list_files", in: args{"path": "/none"}, code: "not_found"},
	{tool: "search_files", in: args{"pattern": `func \w+`}, text: "src/a.go:3:func F() int { return 2 }"},
	{tool: "search_files", in: args{"pattern": "return", "glob": "*.py"}, text: "no match"},
	{tool: "search_files", in: args{"pattern": "("}, code: "invalid_pattern"},
	{tool: "fetch_changes", in: args{}, text: "src/a.go", out: args{"since": "start", "dir": "/workspace"}},
	{tool: "fetch_changes", in: args{"diff": true}, text: "+func F() int { return 2 }"},
	{tool: "fetch_changes", in: args{"since": "nobodys"}, code: "snapshot_not_found"},
	{tool: "snapshot", in: args{"name": "before"}, text: "saved as before"},
	{tool: "bash", in: args{"command": "rm -rf /workspace/src"}},
	{tool: "rollback", in: args{"snapshot": "nobodys"}, code: "snapshot_not_found"},
	{tool: "rollback", in: args{"snapshot": "before"}, text: "as it was"},
	{tool: "read_file", in: args{"path": "src/a.go"}, text: "return 2"},
	{tool: "policy", in: args{}, text: "level: standard", out: args{"network": "policy"}},
	{tool: "expose_port", in: args{"port": 8000}, text: "http://8000-", out: args{"answers": false}},
	{tool: "request_access", in: args{"target": "*.example.com", "reason": "x"}, code: "invalid_target"},
	{tool: "request_access", in: args{"target": "api.example.com", "reason": " "}, code: "no_reason"},
	{tool: "sandbox", in: args{"action": "info"}, text: "running"},
	{tool: "process", in: args{"action": "output", "id": 999}, code: "process_not_found"},
}

func TestToolsInEveryVersion(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			d := p.tenant(mcpserver.Options{})
			a := inMemory(t, d, mcpserver.View{}, version, nil)
			for _, s := range steps {
				got, err := a.try(s.tool, s.in)
				if err != nil {
					t.Fatalf("%s %v: %v", s.tool, s.in, err)
				}
				if got.bad != (s.code != "") || got.code != s.code || !strings.Contains(got.text, s.text) {
					t.Errorf("%s %v: error %v %q, text %q", s.tool, s.in, got.bad, got.code, got.text)
				}
				for name, want := range s.out {
					if got.out[name] != want {
						t.Errorf("%s %v: %s is %v, not %v", s.tool, s.in, name, got.out[name], want)
					}
				}
			}
			checkForks(t, a)
			if err := d.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if list, err := p.local.List(t.Context(), crannog.ListOptions{}); err != nil || len(list) != 0 {
				t.Errorf("sandboxes are left: %v %v", list, err)
			}
		})
	}
}

// checkForks copies the sandbox and uses the copies by their IDs.
func checkForks(t *testing.T, a *agent) {
	t.Helper()
	got := a.do("fork", args{"count": 2})
	copies, ok := got.out["copies"].([]any)
	if !ok || len(copies) != 2 {
		t.Fatalf("fork: %+v", got)
	}
	for _, id := range copies {
		a.do("bash", args{"sandbox": id, "command": fmt.Sprintf("echo %v > mine", id)})
		if got := a.do("bash", args{"sandbox": id, "command": "cat mine /workspace/src/a.go"}); !strings.Contains(got.text, fmt.Sprint(id)) || !strings.Contains(got.text, "return 2") {
			t.Errorf("the copy %v: %s", id, got.text)
		}
	}
	if got := a.do("bash", args{"command": "ls"}); strings.Contains(got.text, "mine") {
		t.Errorf("what a copy wrote is in the sandbox: %s", got.text)
	}
}

func TestEveryToolHasItsHints(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	a := inMemory(t, p.tenant(mcpserver.Options{}), mcpserver.View{}, "2025-11-25", nil)
	names := func(a *agent) []string {
		var list []string
		for tool, err := range a.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, tool.Name)
			h := tool.Annotations
			if tool.Title == "" || tool.Description == "" || h == nil || h.Title == "" || h.DestructiveHint == nil || h.OpenWorldHint == nil || tool.InputSchema == nil || tool.OutputSchema == nil {
				t.Errorf("%s lacks a text or a hint: %+v", tool.Name, tool)
			}
			if h.ReadOnlyHint && *h.DestructiveHint {
				t.Errorf("%s is read-only and destructive", tool.Name)
			}
		}
		return list
	}
	if got := names(a); len(got) != 16 {
		t.Errorf("%d tools: %v", len(got), got)
	}
	readers := names(inMemory(t, p.tenant(mcpserver.Options{}), mcpserver.View{ReadOnly: true}, "2025-11-25", nil))
	for _, writer := range []string{"bash", "python", "process", "write_file", "edit_file", "rollback", "snapshot", "fork", "request_access"} {
		if slices.Contains(readers, writer) {
			t.Errorf("%s changes something and is in the read-only view", writer)
		}
	}
	if !slices.Contains(readers, "read_file") {
		t.Error("read_file is missing")
	}
	if core := names(inMemory(t, p.tenant(mcpserver.Options{}), mcpserver.View{Tools: []string{"core"}}, "2025-11-25", nil)); slices.Contains(core, "sandbox") {
		t.Error("admin's tools are in core")
	}
}

func TestImagesAndResources(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	for _, version := range versions {
		a := inMemory(t, p.tenant(mcpserver.Options{}), mcpserver.View{}, version, nil)
		a.do("write_file", args{"path": "p.png", "base64": pixel})
		if got := a.do("read_file", args{"path": "p.png"}); !slices.Contains(got.kinds, "ImageContent") {
			t.Errorf("no picture: %v", got.kinds)
		}
		long := a.do("bash", args{"command": "seq 1 50000"})
		if n := len(long.text); n > 31_000 || !strings.HasPrefix(long.text, "1\n2\n") || !strings.Contains(long.text, "50000\n") || long.out["truncated"] != true {
			t.Errorf("%d characters: %.20q", n, long.text)
		}
		uri, _ := long.out["log_uri"].(string)
		var all strings.Builder
		for pages := 0; uri != ""; pages++ {
			r, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
			if err != nil || len(r.Contents) != 1 || pages > 10 {
				t.Fatalf("%s: %v", uri, err)
			}
			all.WriteString(r.Contents[0].Text)
			uri, _ = r.Contents[0].Meta["crannog/next"].(string)
		}
		if lines := strings.Count(all.String(), "\n"); lines != 50000 {
			t.Errorf("the log has %d lines", lines)
		}
		sandboxID, _ := long.out["sandbox"].(string)
		r, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "sandbox://" + sandboxID + "/workspace/p.png"})
		if err != nil || base64.StdEncoding.EncodeToString(r.Contents[0].Blob) != pixel {
			t.Errorf("the file as a resource: %v", err)
		}
		for _, bad := range []string{"sandbox://" + sandboxID + "/none", "sandbox://nobodys00000000000/etc/hosts", "sandbox://" + sandboxID + "/logs/999"} {
			if _, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: bad}); err == nil {
				t.Errorf("%s was read", bad)
			}
		}
		if r, err := a.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "review_changes"}); err != nil || len(r.Messages) != 1 {
			t.Errorf("prompt: %v", err)
		}
	}
}
