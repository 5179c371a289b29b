package toolfiles_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/filetree/toolfiles"
	"github.com/crannog/crannog/internal/testkit/doctest"
)

var update = flag.Bool("update", false, "rewrite docs/reference/tool-files.md")

const page = "../../../docs/reference/tool-files.md"

const intro = `# Files that tools read by themselves

Tools on your machine execute some files of a project unasked, and keep credentials in others. A
sandbox that could change the first kind could run something outside; one that could read the second
kind could sign in as you. This is the catalogue of both, made from the package
[internal/filetree/toolfiles](../../internal/filetree/toolfiles/toolfiles.go), whose test writes it.
A name means a file at any depth, in upper and lower case; one that ends with a slash means a
directory with all that is in it.

A file that is missing here and that some tool reads is a defect: please report it.
`

const contents = `
## Contents that look like keys

A key can also be in a file with another name. So a start also checks contents for the formats of
tokens and private keys, which are those that are redacted in outputs
([use secrets](../how-to/use-secrets.md)). The command reports what it finds at the start, and
` + "`workspace_keys`" + ` in ` + "`crannog inspect`" + ` and ` + "`/v1`" + ` lists it by file and kind, never by value. Such
files are not hidden, because tests and examples contain these formats too; ` + "`filesystem.deny`" + ` hides
them.

The check runs while the sandbox boots and does not delay it (14 ms): it reads at most 512 files,
the first 64 KiB of each, and 4 MiB in all. It skips files that the policy hides, ` + "`.git`" + ` except its
` + "`config`" + `, and links. It starts with files whose names contain words such as ` + "`env`" + `, ` + "`secret`" + `,
` + "`token`" + `, ` + "`key`" + ` or ` + "`config`" + `. Files that people write are next, then packages (` + "`node_modules`" + `,
` + "`vendor`" + `) and binary files; of each, those nearer to the top. ` + "`workspace_keys.left`" + ` is the number of
files that were not checked. The history of git is not checked.
`

// TestPage checks that the page matches the catalogue.
func TestPage(t *testing.T) {
	var out strings.Builder
	out.WriteString(intro)
	for _, list := range []struct {
		title, text, column string
		entries             []toolfiles.Entry
	}{
		{"Credentials", "Hidden by the levels light, standard and strict.", "keeps there", toolfiles.Credentials()},
		{"Settings", "By custom they hold a program's secrets and are not committed. Hidden by the levels standard and\nstrict.", "keeps there", toolfiles.Settings()},
		{"Suspects", "They often are a key or hold a token, and as often do not, and a project may not build without\nthem. " +
			"Only the level strict hides them; `filesystem.deny` hides them elsewhere.", "keeps there", toolfiles.Suspects()},
		{"Runs by itself", "A change of one of these stays in the sandbox unless it is asked for:\n[take-changes-out.md](../how-to/take-changes-out.md#what-is-flagged).", "does with them", toolfiles.Runs()},
	} {
		if list.title == "Runs by itself" {
			out.WriteString(contents)
		}
		fmt.Fprintf(&out, "\n## %s\n\n%s\nEach line has the files, the tool, and what the tool %s.\n\n", list.title, list.text, list.column)
		for i := 0; i < len(list.entries); {
			e, names := list.entries[i], []string(nil)
			for ; i < len(list.entries) && list.entries[i].Tool == e.Tool && list.entries[i].When == e.When; i++ {
				names = append(names, "`"+list.entries[i].Name+"`")
			}
			out.WriteString(doctest.ListItem(fmt.Sprintf("%s (%s): %s.", strings.Join(names, " "), e.Tool, e.When)))
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != out.String() {
		t.Errorf("docs/reference/tool-files.md is stale (%v); run go test ./internal/filetree/toolfiles -update", err)
	}
}
