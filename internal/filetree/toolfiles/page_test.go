package toolfiles_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/filetree/toolfiles"
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

Names do not find a key in a file of another name. So a start also looks at contents: what has the
form of a token or a private key (the forms are those that the mask of outputs knows:
[use-secrets.md](../how-to/use-secrets.md)) is reported at the start, and as ` + "`workspace_keys`" + ` in
` + "`crannog inspect`" + ` and API v1, by file and kind, never by value. It is reported and not hidden,
because tests and examples have such forms too; ` + "`filesystem.deny`" + ` hides the file.

The look happens beside the boot and does not make it longer: at most 512 files, of each the first
64 KiB, and 4 MiB in all (14 ms). Files that the policy hides, the insides of ` + "`.git`" + ` but its
` + "`config`" + `, and links are left out. Likely names come first (` + "`env`" + `, ` + "`secret`" + `, ` + "`token`" + `, ` + "`key`" + `, ` + "`config`" + `
and so on in them), then files that people write, then the rest, where what packages brought
(` + "`node_modules`" + `, ` + "`vendor`" + `) and binary files are; of each, those that lie higher.
` + "`workspace_keys.left`" + ` counts the files that were not looked at. git's history is not looked at.
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
		{"Settings", "By custom they hold a program's secrets and are not committed. Hidden by the levels standard and\nstrict.", "keeps there", toolfiles.Settings()},
		{"Suspects", "They often are a key or hold a token, and as often do not, and a project may not build without\nthem. " +
			"Only the level strict hides them; `filesystem.deny` hides them elsewhere.", "keeps there", toolfiles.Suspects()},
		{"Runs by itself", "A change of one of these stays in the sandbox unless it is asked for:\n[take-changes-out.md](../how-to/take-changes-out.md#what-is-flagged).", "reads it when, or does with it", toolfiles.Runs()},
	} {
		if list.title == "Runs by itself" {
			out.WriteString(contents)
		}
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
		t.Errorf("docs/reference/tool-files.md is stale (%v); run go test ./internal/filetree/toolfiles -update", err)
	}
}
