package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/filetree/toolfiles"
)

// TestCredentialFilesAreHidden checks each entry of the catalogue at each level.
func TestCredentialFilesAreHidden(t *testing.T) {
	for _, level := range []struct {
		name    string
		hidden  []toolfiles.Entry
		visible []string
	}{
		{"light", toolfiles.Credentials(), []string{".env", ".npmrc", "key.pem"}},
		{"standard", slices.Concat(toolfiles.Credentials(), toolfiles.Settings()), []string{".env.example", ".npmrc", "cert.pem", "docker/config.json"}},
		{"strict", slices.Concat(toolfiles.Credentials(), toolfiles.Settings(), toolfiles.Suspects()), []string{"env", "config.json"}},
	} {
		p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Level: level.name}})
		if err != nil {
			t.Fatal(err)
		}
		m := p.Files().Matcher()
		for _, e := range level.hidden {
			name := e.Name
			switch kind, text := e.Form(); kind {
			case toolfiles.Dir:
				name = text + "/x"
			case toolfiles.Suffix:
				name = "x" + text
			case toolfiles.Prefix:
				name = text + "x"
			}
			// A file system or a tool that ignores case finds them under any spelling.
			for _, path := range []string{"/workspace/" + name, "/workspace/deep/er/" + name, "/workspace/" + strings.ToUpper(name)} {
				if !m.Denied(path) {
					t.Errorf("level %s: %s is visible; %s stores %s there", level.name, path, e.Tool, e.When)
				}
			}
		}
		for _, name := range append(level.visible, "main.go", "src/token.go", "README.md") {
			if m.Denied("/workspace/" + name) {
				t.Errorf("level %s: %s is hidden", level.name, name)
			}
		}
		// Regression: these names were once visible.
		for _, name := range []string{"id_rsa", ".kube/config", ".docker/config.json", ".config/gcloud/access_tokens.db", ".azure/msal_token_cache.json"} {
			if !m.Denied("/workspace/" + name) {
				t.Errorf("level %s: %s is visible", level.name, name)
			}
		}
	}
}
