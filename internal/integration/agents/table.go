package agents

import (
	"encoding/json"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// All returns the agents. The rules allow only those parts of an API that inference needs.
// Otherwise a program inside could upload data to the API with an attacker's key, and so send the
// data out of the sandbox.
func All() []Agent {
	return []Agent{
		{
			Name: "claude", Title: "Claude Code", Program: "claude", Tools: true, Install: "npm install -g @anthropic-ai/claude-code",
			InstallDirs: []string{".claude/local/node_modules/.bin"}, Keys: []Key{anthropic(), anthropicToken()}, Files: claudeFiles,
			Env: map[string]string{"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_INSTALLATION_CHECKS": "1"},
		},
		{
			Name: "codex", Title: "Codex", Program: "codex", Tools: true, Install: "npm install -g @openai/codex",
			Keys: []Key{openai()}, Files: codexFiles,
		},
		{
			Name: "gemini", Title: "Gemini CLI", Program: "gemini", Tools: true, Install: "npm install -g @google/gemini-cli",
			Keys: []Key{gemini()}, Files: geminiFiles,
			Env: map[string]string{"GEMINI_CLI_TRUST_WORKSPACE": "true"},
		},
		{
			Name: "opencode", Title: "opencode", Program: "opencode", Tools: true, Install: "npm install -g opencode-ai",
			InstallDirs: []string{".opencode/bin"}, AllKeys: true, Keys: []Key{anthropic(), openai(), gemini(), openrouter()},
			Hosts: []policy.Host{{Host: "models.dev", Rules: []policy.Rule{allow("list", "GET", "/api.json")}}},
			Env:   map[string]string{"OPENCODE_DISABLE_AUTOUPDATE": "true"},
		},
		{Name: "shell", Title: "bash", Program: "bash"},
	}
}

func allow(id, method string, paths ...string) policy.Rule {
	return policy.Rule{ID: id, Methods: []string{method}, Paths: paths, Do: egress.Allow}
}

func anthropicHost() policy.Host {
	return policy.Host{Host: "api.anthropic.com", Rules: []policy.Rule{
		allow("messages", "POST", "/v1/messages", "/v1/messages/count_tokens"),
		allow("read", "GET", "/v1/models", "/v1/models/*", "/api/hello", "/api/claude_code/*"),
		allow("alive", "HEAD", "/"),
	}}
}

func anthropic() Key {
	return Key{Secret: "ANTHROPIC_API_KEY", Host: anthropicHost(), Header: "x-api-key"}
}

// anthropicToken is the token that "claude setup-token" prints.
func anthropicToken() Key {
	return Key{Secret: "CLAUDE_CODE_OAUTH_TOKEN", Host: anthropicHost(), Header: "Authorization", Format: "Bearer {}"}
}

func openai() Key {
	return Key{Secret: "OPENAI_API_KEY", Header: "Authorization", Format: "Bearer {}", Host: policy.Host{
		// Codex streams its answers over a WebSocket if possible.
		Host: "api.openai.com", WebSocket: egress.Allow, Rules: []policy.Rule{
			allow("respond", "POST", "/v1/responses", "/v1/responses/compact", "/v1/chat/completions"),
			allow("read", "GET", "/v1/models", "/v1/models/*", "/v1/responses"),
		},
	}}
}

func gemini() Key {
	return Key{Secret: "GEMINI_API_KEY", Header: "x-goog-api-key", Host: policy.Host{
		Host: "generativelanguage.googleapis.com", Rules: []policy.Rule{
			// The method is part of the last segment: models/NAME:generateContent.
			allow("generate", "POST", "/v1beta/models/*", "/v1/models/*"),
			allow("read", "GET", "/v1beta/models", "/v1beta/models/*"),
		},
	}}
}

func openrouter() Key {
	return Key{Secret: "OPENROUTER_API_KEY", Header: "Authorization", Format: "Bearer {}", Host: policy.Host{
		Host: "openrouter.ai", Rules: []policy.Rule{
			allow("complete", "POST", "/api/v1/chat/completions", "/api/v1/responses"),
			allow("read", "GET", "/api/v1/models"),
		},
	}}
}

// claudeFiles records that the user has confirmed the key and trusts the directory. This is safe,
// because the directory is a copy in a sandbox that contains nothing else.
func claudeFiles(secret, placeholder string) map[string]string {
	settings := map[string]any{
		"hasCompletedOnboarding": true,
		"projects":               map[string]any{"/workspace": map[string]any{"hasTrustDialogAccepted": true}},
	}
	if secret == "ANTHROPIC_API_KEY" {
		// The program identifies a confirmed key by its last letters.
		settings["customApiKeyResponses"] = map[string]any{"approved": []string{placeholder[max(0, len(placeholder)-20):]}, "rejected": []string{}}
	}
	return map[string]string{".claude.json": text(settings)}
}

func codexFiles(_, placeholder string) map[string]string {
	return map[string]string{
		".codex/auth.json":   text(map[string]any{"auth_mode": "apikey", "OPENAI_API_KEY": placeholder}),
		".codex/config.toml": "check_for_update_on_startup = false\n\n[projects.\"/workspace\"]\ntrust_level = \"trusted\"\n",
	}
}

func geminiFiles(string, string) map[string]string {
	return map[string]string{".gemini/settings.json": text(map[string]any{
		"security": map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}},
		"general":  map[string]any{"disableAutoUpdate": true, "enableAutoUpdate": false},
		"privacy":  map[string]any{"usageStatisticsEnabled": false},
	})}
}

// text returns v as JSON with a line end.
func text(v any) string {
	// Maps of strings and booleans always marshal.
	data, _ := json.Marshal(v)
	return string(data) + "\n"
}
