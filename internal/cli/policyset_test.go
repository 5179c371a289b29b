package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/crannog/crannog/api"
)

// A change keeps the level of a sandbox unless it names one, because the level also decides which
// files may be exported.
func TestAChangeKeepsTheLevel(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain.yaml", "policy: v1\nnetwork:\n  hosts: [{host: a.example}]\n")
	strict := write("strict.yaml", "policy: v1\nlevel: strict\nnetwork:\n  hosts: [{host: a.example}]\n")
	linked, shut, open := api.Network{Attached: true, Net: "policy", Level: "light"}, api.Network{Net: "none", Level: "light"}, api.Network{Attached: true, Net: "open", Level: "minimal"}
	for i, c := range []struct {
		flags      accessFlags
		now        api.Network
		level, net string
	}{
		{accessFlags{policy: plain}, linked, "light", ""},
		{accessFlags{policy: strict}, linked, "", ""},
		{accessFlags{policy: plain, level: "standard"}, linked, "standard", ""},
		{accessFlags{policy: plain}, open, "", ""},
		{accessFlags{allow: []string{"a.example"}}, linked, "light", ""},
		{accessFlags{net: "open"}, linked, "", "open"},
		{accessFlags{level: "strict"}, linked, "strict", "policy"},
		{accessFlags{artifacts: []string{"dist/**"}}, linked, "light", "policy"},
		{accessFlags{artifacts: []string{"dist/**"}}, shut, "light", "none"},
		{accessFlags{level: "strict"}, shut, "strict", "none"},
	} {
		kept, err := c.flags.keeping(c.now)
		if err != nil || kept.level != c.level || kept.net != c.net || !slices.Equal(kept.artifacts, c.flags.artifacts) {
			t.Errorf("%d: level %q and network %q, %v, want %q and %q", i, kept.level, kept.net, err, c.level, c.net)
		}
	}
	// --artifact alone is a change, and reaches the server.
	if code, _, stderr := run(t, "policy", "set", "a", "--artifact", "dist/**"); code != codeUnreachable {
		t.Errorf("%d %s", code, stderr)
	}
	if code, _, stderr := run(t, "policy", "set", "a"); code != codeUsage {
		t.Errorf("%d %s", code, stderr)
	}
}
