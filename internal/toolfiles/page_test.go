package toolfiles_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/toolfiles"
)

var update = flag.Bool("update", false, "rewrite docs/tool-files.md")

const page = "../../docs/tool-files.md"

const intro = `# Files that tools read by themselves

Tools on your machine execute some files of a project unasked, and keep credentials in others. A
sandbox that could change the first kind could run something outside; one that could read the second
kind could sign in as you. This is the catalogue of both, made from the package
[internal/toolfiles](../internal/toolfiles/toolfiles.go), whose test writes it. A name means a file at any depth,
in upper and lower case; one that ends with a slash means a directory with all that is in it.

A file that is missing here and that some tool reads is a defect: please report it.
`

// TestPage keeps the page and the catalogue the same.
func TestPage(t *testing.T) {
	var out strings.Builder
	out.WriteString(intro)
	for _, list := range []struct {
		title, text, column string
		entries             []toolfiles.Entry
	}{
		{"Credentials", "Hidden by the levels light, standard and strict.", "keeps there", toolfiles.Credentials()},
		{"Settings", "By custom they hold a program's secrets and are not committed. Hidden by the levels standard and strict.", "keeps there", toolfiles.Settings()},
		{"Suspects", "They often are a key or hold a token, and as often do not, and a project may not build without them. Hidden by the level strict alone; " +
			"`filesystem.deny` hides them elsewhere.", "keeps there", toolfiles.Suspects()},
		{"Runs by itself", "A change of one of these stays in the sandbox unless it is asked for: [export.md](export.md#what-is-flagged).", "reads it when, or does with it", toolfiles.Runs()},
	} {
		fmt.Fprintf(&out, "\n## %s\n\n%s\n\n| files | tool | %s |\n|---|---|---|\n", list.title, list.text, list.column)
		for i := 0; i < len(list.entries); {
			e, names := list.entries[i], []string(nil)
			for ; i < len(list.entries) && list.entries[i].Tool == e.Tool && list.entries[i].When == e.When; i++ {
				names = append(names, "`"+list.entries[i].Name+"`")
			}
			fmt.Fprintf(&out, "| %s | %s | %s |\n", strings.Join(names, " "), e.Tool, e.When)
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != out.String() {
		t.Errorf("docs/tool-files.md is stale (%v); run go test ./internal/toolfiles -update", err)
	}
}
