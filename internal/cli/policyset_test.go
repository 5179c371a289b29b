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
func TestPolicySetKeepsLevel(t *testing.T) {
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
	limited, noNetwork, open := api.Network{Attached: true, Net: "policy", Level: "light"}, api.Network{Net: "none", Level: "light"}, api.Network{Attached: true, Net: "open", Level: "minimal"}
	for i, c := range []struct {
		flags      accessFlags
		now        api.Network
		level, net string
	}{
		{accessFlags{policy: plain}, limited, "light", ""},
		{accessFlags{policy: strict}, limited, "", ""},
		{accessFlags{policy: plain, level: "standard"}, limited, "standard", ""},
		{accessFlags{policy: plain}, open, "", ""},
		{accessFlags{allow: []string{"a.example"}}, limited, "light", ""},
		{accessFlags{net: "open"}, limited, "", "open"},
		{accessFlags{level: "strict"}, limited, "strict", "policy"},
		{accessFlags{artifacts: []string{"dist/**"}}, limited, "light", "policy"},
		{accessFlags{artifacts: []string{"dist/**"}}, noNetwork, "light", "none"},
		{accessFlags{level: "strict"}, noNetwork, "strict", "none"},
	} {
		merged, err := c.flags.withKept(c.now)
		if err != nil || merged.level != c.level || merged.net != c.net || !slices.Equal(merged.artifacts, c.flags.artifacts) {
			t.Errorf("case %d: got level %q, network %q, error %v, want level %q, network %q", i, merged.level, merged.net, err, c.level, c.net)
		}
	}
	// --artifact alone is a change, and reaches the server.
	if code, _, stderr := run(t, "policy", "set", "a", "--artifact", "dist/**"); code != codeUnreachable {
		t.Errorf("run: got %d, %s", code, stderr)
	}
	if code, _, stderr := run(t, "policy", "set", "a"); code != codeUsage {
		t.Errorf("run: got %d, %s", code, stderr)
	}
}
