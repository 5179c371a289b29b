// Package registration owns Crannog's entries in the configuration of MCP clients: where each
// client stores its list of servers, in which format, and how to add and remove an entry without
// changing the rest of the file. It never writes a key, only the place where the client finds one.
package registration

import (
	"path/filepath"
	"slices"

	"github.com/crannog/crannog/internal/fault"
)

// ServerName is the name of the entry in every client's list.
const ServerName = "crannog"

// KeyVariable is the environment variable with the key that clients send over HTTP.
const KeyVariable = "CRANNOG_KEY"

// Scope selects for which sessions an entry applies.
type Scope string

// Scopes.
const (
	User    Scope = "user"    // all sessions of this user
	Project Scope = "project" // all users who work in a directory
)

// Server is the server to register: a program to start, or a URL.
type Server struct {
	Command string   // absolute
	Args    []string // of the program
	URL     string   // instead of a program
}

// Directories describes where configuration files are searched.
type Directories struct {
	Home, Directory string
	// Variable returns the value of an environment variable.
	Variable func(string) string
}

// client is an MCP client whose configuration format is known.
type client struct {
	name, title string
	// Paths of its configuration file. If the client has an environment variable for the directory,
	// its value replaces the home directory.
	user, project string
	variable      string
	list          string // key of the list in the file
	toml          bool
	entry         func(Server) map[string]any
	// ours are the fields that belong to Crannog in its entry. Others are preserved.
	ours []string
	// prompts is set if the client can ask its user for the key once, and store it.
	prompts bool
	// instructions are printed after an entry with a URL was written.
	instructions string
}

// keyPrompt is the name of the client's prompt for the key.
const keyPrompt = "crannog-key"

// jsonFields are the fields that Crannog's entry may contain in a JSON file.
var jsonFields = []string{"type", "command", "args", "url", "httpUrl", "headers"}

func clients() []client {
	environment := "set " + KeyVariable + " to a key in the environment of %s; crannog key new --mcp makes one that opens nothing else"
	return []client{
		{
			name: "claude", title: "Claude Code", user: ".claude.json", project: ".mcp.json", variable: "CLAUDE_CONFIG_DIR", list: "mcpServers", ours: jsonFields,
			entry: func(s Server) map[string]any { return standard(s, "http", "url", "${"+KeyVariable+"}") }, instructions: environment,
		},
		{
			name: "cursor", title: "Cursor", user: ".cursor/mcp.json", project: ".cursor/mcp.json", list: "mcpServers", ours: jsonFields,
			entry: func(s Server) map[string]any { return untyped(standard(s, "", "url", "${env:"+KeyVariable+"}")) }, instructions: environment,
		},
		{
			name: "vscode", title: "Visual Studio Code", user: ".config/Code/User/mcp.json", project: ".vscode/mcp.json", list: "servers", ours: jsonFields,
			entry:   func(s Server) map[string]any { return standard(s, "http", "url", "${input:"+keyPrompt+"}") },
			prompts: true, instructions: "%s asks for a key once; crannog key new --mcp makes one that opens nothing else",
		},
		{
			name: "codex", title: "Codex", user: ".codex/config.toml", project: ".codex/config.toml", variable: "CODEX_HOME", list: "mcp_servers", toml: true,
			entry: codexEntry, ours: []string{"command", "args", "url", "bearer_token_env_var"}, instructions: environment,
		},
		{
			name: "gemini", title: "Gemini CLI", user: ".gemini/settings.json", project: ".gemini/settings.json", list: "mcpServers", ours: jsonFields,
			entry: func(s Server) map[string]any { return untyped(standard(s, "", "httpUrl", "$"+KeyVariable)) }, instructions: environment,
		},
	}
}

// standard returns the entry that most programs read.
func standard(s Server, kind, url, key string) map[string]any {
	if s.URL != "" {
		return map[string]any{"type": kind, url: s.URL, "headers": map[string]any{"Authorization": "Bearer " + key}}
	}
	return map[string]any{"type": "stdio", "command": s.Command, "args": s.Args}
}

// untyped removes the type, which some programs do not know.
func untyped(entry map[string]any) map[string]any {
	delete(entry, "type")
	return entry
}

func codexEntry(s Server) map[string]any {
	if s.URL != "" {
		return map[string]any{"url": s.URL, "bearer_token_env_var": KeyVariable}
	}
	return map[string]any{"command": s.Command, "args": s.Args}
}

// Clients lists the names of the programs that are known.
func Clients() []string {
	var names []string
	for _, c := range clients() {
		names = append(names, c.name)
	}
	return names
}

func find(name string) (client, error) {
	all := clients()
	if i := slices.IndexFunc(all, func(c client) bool { return c.name == name }); i >= 0 {
		return all[i], nil
	}
	return client{}, fault.Newf(fault.Invalid, "client_unknown", "there is no program %q", name).
		WithHint("known are claude, cursor, vscode, codex and gemini")
}

// path returns the path of a program's configuration file.
func (c client) path(scope Scope, p Directories) (string, error) {
	switch {
	case scope == Project:
		return filepath.Join(p.Directory, c.project), nil
	case scope != User:
		return "", fault.Newf(fault.Invalid, "scope_unknown", "there is no scope %q", scope).WithHint("scopes are user and project")
	}
	if dir := p.Variable(c.variable); c.variable != "" && filepath.IsAbs(dir) {
		return filepath.Join(dir, filepath.Base(c.user)), nil
	}
	if p.Home == "" {
		return "", fault.New(fault.Invalid, "home_unknown", "this user has no home directory").WithHint("use --scope project")
	}
	return filepath.Join(p.Home, c.user), nil
}
