package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/doctest"
)

var update = flag.Bool("update", false, "write docs/reference/configuration.md")

const documentPath = "../../docs/reference/configuration.md"

// TestDocument checks that the page is what the settings generate, so that the two cannot differ.
func TestDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Settings\n\n" +
		"Later sources win: the default, the file, the environment, a flag. The file is the one that\n" +
		"`--config` or `CRANNOG_CONFIG` names, else `~/.config/crannog/config.toml`, else\n" +
		"`/etc/crannog/config.toml`. An unknown name in the file is an error. `crannog config` shows every\n" +
		"value with its source. Sizes are bytes with k, m, g or t for powers of 1024; times are like `90s` or\n" +
		"whole seconds. The environment variable of a setting is `CRANNOG_` and its name in capitals, for\n" +
		"example `CRANNOG_MAX_LIVE`. Each line has the name in the file, its default, and its meaning.\n\n")
	c := Default(Env{Lookup: func(string) (string, bool) { return "", false }, UID: 0})
	for _, s := range settings {
		value := s.show(&c)
		name := "`" + s.name + "`"
		if usual := "CRANNOG_" + strings.ToUpper(s.name); envName(s.name) != usual {
			name += " (variable `" + envName(s.name) + "`)"
		}
		if value == "" {
			value = "none"
		}
		b.WriteString(doctest.ListItem(fmt.Sprintf("%s, default %s: %s.", name, value, s.help)))
	}
	b.WriteString("\nThe default of `state` is for root; other users have `~/.local/share/crannog`.\n")
	if *update {
		if err := os.WriteFile(documentPath, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(documentPath)
	if err != nil || string(have) != b.String() {
		t.Errorf("%s is stale; run: go test ./internal/config -update (%v)", documentPath, err)
	}
}
