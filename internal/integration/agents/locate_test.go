package agents_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/integration/agents"
)

// elf is the beginning of a program that is no script.
const elf = "\x7fELF and so on"

// writeHome creates files below a directory and returns it. A text that begins with -> makes a
// symbolic link.
func writeHome(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, link := strings.CutPrefix(text, "->"); link {
			err = os.Symlink(to, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLocateFindsProgramAndInterpreter(t *testing.T) {
	const script = "#!/usr/bin/env node\n"
	for name, c := range map[string]struct {
		files      map[string]string
		path       []string // below the home
		show, args []string // HOME stands for the home directory
	}{
		"a single file": {
			files: map[string]string{".local/bin/claude": "->../share/claude/versions/2", ".local/share/claude/versions/2": elf},
			show:  []string{"HOME/.local/share/claude/versions/2"}, args: []string{"/.crannog/programs/file-1"},
		},
		"a global package with node beside it": {
			files: map[string]string{
				"n/bin/claude": "->../lib/node_modules/@a/claude/cli.js", "n/lib/node_modules/@a/claude/cli.js": script,
				"n/lib/node_modules/other/x": "", "n/bin/node": elf,
			},
			path: []string{"n/bin"}, show: []string{"HOME/n/bin/node", "HOME/n/lib/node_modules/@a/claude"},
			args: []string{"/.crannog/programs/file-1", "/.crannog/programs/2/cli.js"},
		},
		"a wrapper script named node is skipped": {
			files: map[string]string{
				"n/bin/claude": "->../lib/node_modules/claude/cli.js", "n/lib/node_modules/claude/cli.js": "#!/usr/bin/env -S node --x\n",
				"n/bin/node": "#!/bin/sh\n", "o/bin/node": elf,
			},
			path: []string{"n/bin", "o/bin"}, show: []string{"HOME/o/bin/node", "HOME/n/lib/node_modules/claude"},
			args: []string{"/.crannog/programs/file-1", "/.crannog/programs/2/cli.js"},
		},
		"a package tree of its own": {
			files: map[string]string{
				".claude/local/node_modules/.bin/claude": "->../claude/cli", ".claude/local/node_modules/claude/cli": elf,
				".claude/local/node_modules/.package-lock.json": "", ".claude/local/node_modules/dependency/x": "",
			},
			show: []string{"HOME/.claude/local/node_modules"}, args: []string{"/.crannog/programs/1/claude/cli"},
		},
		"a relative PATH entry is skipped": {
			files: map[string]string{"bin/claude": elf}, path: []string{"../..", "bin"},
			show: []string{"HOME/bin/claude"}, args: []string{"/.crannog/programs/file-1"},
		},
		"a file that is not executable is skipped": {
			files: map[string]string{"n/bin/claude/x": "", ".bun/bin/claude": elf}, path: []string{"n/bin"},
			show: []string{"HOME/.bun/bin/claude"}, args: []string{"/.crannog/programs/file-1"},
		},
	} {
		dir := writeHome(t, c.files)
		h := agents.Host{Home: dir}
		for _, p := range c.path {
			if filepath.IsLocal(p) && p != "bin" {
				p = filepath.Join(dir, p)
			}
			h.Path = append(h.Path, p)
		}
		claude, _ := agents.Find("claude")
		got, err := h.Locate(claude)
		if err != nil {
			t.Errorf("%s: Locate: error %v", name, err)
			continue
		}
		for i := range c.show {
			c.show[i] = strings.Replace(c.show[i], "HOME", dir, 1)
		}
		if !slices.Equal(got.Show, c.show) || !slices.Equal(got.Args, c.args) {
			t.Errorf("%s: got command %v and files %v, want %v and %v", name, got.Args, got.Show, c.args, c.show)
		}
	}
}

func TestLocateRejectsUnusablePrograms(t *testing.T) {
	claude, _ := agents.Find("claude")
	_, err := agents.Host{Home: t.TempDir()}.Locate(claude)
	if fault.CodeOf(err) != "agent_not_installed" || !strings.Contains(fault.HintOf(err), claude.Install) {
		t.Errorf("without the program: got %v, want agent_not_installed with the install command", err)
	}
	// If a node_modules contained the home directory, all of it would be visible inside.
	dir := writeHome(t, map[string]string{"node_modules/.x/me/.local/bin/claude": elf})
	_, err = agents.Host{Home: filepath.Join(dir, "node_modules/.x/me")}.Locate(claude)
	if fault.CodeOf(err) != "agent_in_home" {
		t.Errorf("tree that contains the home directory: got %v, want agent_in_home", err)
	}
	dir = writeHome(t, map[string]string{".local/bin/claude": "#!/usr/bin/env bun\n"})
	if _, err = (agents.Host{Home: dir}).Locate(claude); fault.CodeOf(err) != "interpreter_not_installed" {
		t.Errorf("without the interpreter: got %v, want interpreter_not_installed", err)
	}
}

func TestNpmPrefixReadsOnlyPrefix(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"//r/:_authToken=x\n":           "",
		"prefix=/opt/npm":               "/opt/npm",
		"a=b\n prefix = \"~/.npm-all\"": "/home/me/.npm-all",
		"prefix=${HOME}/n\n":            "/home/me/n",
	} {
		if got := agents.NpmPrefix(text, "/home/me"); got != want {
			t.Errorf("NpmPrefix(%q): got %q, want %q", text, got, want)
		}
	}
}

// The policy of each agent compiles. It sends the agent's key only to the agent's API.
func TestPresetsCompile(t *testing.T) {
	for _, a := range agents.All() {
		if a.Name == "shell" {
			continue
		}
		keys := a.Usable(func(string) bool { return true })
		if len(keys) == 0 || !a.AllKeys && len(keys) != 1 {
			t.Errorf("%s: Usable returns %d keys", a.Name, len(keys))
		}
		for _, unlisted := range []string{"deny", "ask", "allow"} {
			d, err := a.Preset(keys, unlisted)
			if err != nil {
				t.Fatal(err)
			}
			text, err := d.YAML()
			if err != nil {
				t.Fatal(err)
			}
			again, err := policy.Parse([]byte(text))
			if err != nil {
				t.Fatalf("%s: %v\n%s", a.Name, err, text)
			}
			p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: again})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Binds()) != len(keys) {
				t.Errorf("%s: got %d bindings, want %d", a.Name, len(p.Binds()), len(keys))
			}
			if p.Reachable("example.com") != (unlisted != "deny") || !p.Reachable(keys[0].Host.Host) {
				t.Errorf("%s with %s for unlisted hosts: wrong hosts are reachable", a.Name, unlisted)
			}
			for _, b := range p.Document().Secrets.Bind {
				if b.Approve {
					t.Errorf("%s: the use of its key needs an approval, want none", a.Name)
				}
			}
		}
	}
}

func TestGrantKeepsHostsOfDocument(t *testing.T) {
	a, _ := agents.Find("claude")
	d, err := policy.Parse([]byte("policy: v1\nnetwork: {unlisted: deny, hosts: [{host: api.anthropic.com, rules: [{id: none, do: deny}]}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	a.Grant(&d, a.Usable(func(s string) bool { return s == "CLAUDE_CODE_OAUTH_TOKEN" }))
	if len(d.Network.Hosts) != 1 || d.Network.Hosts[0].Rules[0].ID != "none" {
		t.Errorf("hosts: got %+v, want only the document's own rule", d.Network.Hosts)
	}
	if len(d.Secrets.Bind) != 1 || d.Secrets.Bind[0].Name != "CLAUDE_CODE_OAUTH_TOKEN" {
		t.Errorf("bindings: got %+v, want one of CLAUDE_CODE_OAUTH_TOKEN", d.Secrets.Bind)
	}
}
