package registration_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/integration/registration"
)

func testDirectories(t *testing.T) registration.Directories {
	return registration.Directories{Home: t.TempDir(), Directory: t.TempDir(), Variable: func(string) string { return "" }}
}

var program = registration.Server{Command: "/opt/crannog", Args: []string{"mcp"}}

func TestInstallAndUninstallForEachClient(t *testing.T) {
	remote := registration.Server{URL: "http://localhost:7070/mcp"}
	paths := map[string][2]string{
		"claude": {".claude.json", ".mcp.json"}, "cursor": {".cursor/mcp.json", ".cursor/mcp.json"},
		"vscode": {".config/Code/User/mcp.json", ".vscode/mcp.json"}, "codex": {".codex/config.toml", ".codex/config.toml"},
		"gemini": {".gemini/settings.json", ".gemini/settings.json"},
	}
	for _, name := range registration.Clients() {
		for i, scope := range []registration.Scope{registration.User, registration.Project} {
			for _, server := range []registration.Server{program, remote, program} {
				p := testDirectories(t)
				path := filepath.Join(p.Home, paths[name][0])
				if scope == registration.Project {
					path = filepath.Join(p.Directory, paths[name][1])
				}
				change, err := registration.Install(name, scope, p, server)
				if err != nil || change.Path != path || !strings.Contains(change.Diff(), "+++ "+path) {
					t.Fatalf("%s %s: got %+v, %v; want a change of %s", name, scope, change, err, path)
				}
				if _, err := os.Stat(path); err == nil {
					t.Fatalf("%s: Install wrote the file before Write", name)
				}
				if backup, err := change.Write(); err != nil || backup != "" {
					t.Fatalf("%s: Write: got backup %q, %v; want no backup of a new file", name, backup, err)
				}
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				for _, want := range []string{server.URL, server.Command, registration.ServerName} {
					if !strings.Contains(string(text), want) {
						t.Errorf("%s %s has no %q: %s", name, scope, want, text)
					}
				}
				info, err := os.Stat(path)
				if err != nil || info.Mode().Perm() != []fs.FileMode{0o600, 0o644}[i] {
					t.Errorf("%s %s: mode %v, %v", name, scope, info.Mode(), err)
				}
				again, err := registration.Install(name, scope, p, server)
				if err != nil || !again.Empty() {
					t.Errorf("%s %s: second Install: got %v and the diff %q, want no change", name, scope, err, again.Diff())
				}
				removal, err := registration.Uninstall(name, scope, p)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := removal.Write(); err != nil {
					t.Fatal(err)
				}
				if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "/opt/crannog") || strings.Contains(string(text), "7070") {
					t.Errorf("%s %s: after Uninstall: %v, and the file has %s", name, scope, err, text)
				}
			}
		}
	}
}

func TestInstallPreservesRestOfFile(t *testing.T) {
	p := testDirectories(t)
	path := filepath.Join(p.Home, ".claude.json")
	const before = "{\n  \"oauth\": \"tok-1\",\n  \"mcpServers\": {\n    \"crannog\": {\"command\": \"/old\", \"url\": \"http://x\", \"disabled\": true}\n  }\n}\n"
	if err := os.WriteFile(filepath.Join(p.Home, "real.json"), []byte(before), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real.json", path); err != nil {
		t.Fatal(err)
	}
	change, err := registration.Install("claude", registration.User, p, program)
	if err != nil {
		t.Fatal(err)
	}
	backup, err := change.Write()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(backup); err != nil || string(text) != before {
		t.Errorf("backup: got %q (%v), want the old content", text, err)
	}
	for _, name := range []string{"real.json", filepath.Base(backup)} {
		if info, err := os.Lstat(filepath.Join(p.Home, name)); err != nil || info.Mode() != 0o640 {
			t.Errorf("mode of %s: got %v (%v), want 0640", name, info, err)
		}
	}
	if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("got %v (%v), want the symbolic link preserved", info, err)
	}
	var got struct {
		OAuth      string
		MCPServers map[string]map[string]any
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	ours := got.MCPServers["crannog"]
	if err != nil || got.OAuth != "tok-1" || ours["command"] != "/opt/crannog" || ours["disabled"] != true || ours["url"] != nil {
		t.Errorf("got %s (%v), want the new command and the other fields preserved", text, err)
	}
	entries, err := os.ReadDir(p.Home)
	if err != nil || len(entries) != 3 {
		t.Errorf("got the files %v (%v), want the link, its target and the backup", entries, err)
	}
}

func TestWriteRejectsFileThatChanged(t *testing.T) {
	p := testDirectories(t)
	change, err := registration.Install("gemini", registration.Project, p, program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(p.Directory, ".gemini/settings.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{\"a\": 1}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := change.Write(); fault.CodeOf(err) != "configuration_not_written" {
		t.Errorf("Write: got %v, want configuration_not_written", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "{\"a\": 1}" {
		t.Errorf("got %q (%v), want the file unchanged", text, err)
	}
}

func TestInstallRejectsUnknownInput(t *testing.T) {
	p := testDirectories(t)
	path := filepath.Join(p.Directory, ".mcp.json")
	if err := os.WriteFile(path, []byte("{\"mcpServers\": []}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := registration.Install("claude", registration.Project, p, program); fault.CodeOf(err) != "configuration_not_edited" {
		t.Errorf("list of the wrong type: got %v, want configuration_not_edited", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", path); err != nil {
		t.Fatal(err)
	}
	if _, err := registration.Install("claude", registration.Project, p, program); fault.CodeOf(err) != "configuration_unreadable" {
		t.Errorf("broken link: got %v, want configuration_unreadable", err)
	}
	if _, err := registration.Install("emacs", registration.User, p, program); fault.CodeOf(err) != "client_unknown" {
		t.Errorf("unknown program: got %v, want client_unknown", err)
	}
	if _, err := registration.Install("claude", "all", p, program); fault.CodeOf(err) != "scope_unknown" {
		t.Errorf("unknown scope: got %v, want scope_unknown", err)
	}
	p.Home = ""
	if _, err := registration.Install("claude", registration.User, p, program); fault.CodeOf(err) != "home_unknown" {
		t.Errorf("no home directory: got %v, want home_unknown", err)
	}
}

func TestTextsMatchRepository(t *testing.T) {
	text, err := os.ReadFile("../../../llms.txt")
	if err != nil || string(text) != registration.LLMs() {
		t.Errorf("llms.txt at the top differs: %v", err)
	}
	if !strings.HasPrefix(registration.Skill(), "---\nname: crannog\ndescription: ") {
		t.Errorf("the skill begins with %.60q", registration.Skill())
	}
}
