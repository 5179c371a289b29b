package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
)

func TestListChanges(t *testing.T) {
	var b bytes.Buffer
	listChanges(&b, flaggedFirst([]api.Change{
		{Path: "a.txt", Op: "created", Type: "file", Added: 3},
		{Path: "bin", Op: "changed", Type: "file", Binary: true, Size: 2048},
		{Path: "up", Op: "created", Type: "link", Target: "../x", Flags: []string{"link_out"}},
		{Path: ".envrc", Op: "changed", Type: "file", Added: 1, Removed: 2, Flags: []string{"protected", "runs_by_itself", "conflict"}, Conflict: "changed_outside"},
	}))
	want := "created  up      link to ../x  ! a link that points out of the workspace: not exported\n" +
		"changed  .envrc  +1 −2  ! protected, tools run it by themselves, conflict: changed outside\n" +
		"created  a.txt   +3 −0\n" +
		"changed  bin     binary, 2.0 kB\n"
	// The size of the binary file is not compared.
	if got := b.String(); !strings.HasPrefix(got, strings.SplitAfter(want, "changed  bin")[0]) {
		t.Errorf("listChanges: got\n%s\nwant\n%s", got, want)
	}
}

// P38: printed text of a sandbox contains no cursor movement, colours or right-to-left marks. With
// them, it could hide from a person what is applied.
func TestDiffOutputIsInert(t *testing.T) {
	evil := "x\x1b[2J\x1b]0;t\x07\u202egpj.exe\u200b\rclean"
	var b bytes.Buffer
	listChanges(&b, []api.Change{{Path: evil, Op: "created", Type: "link", Target: evil}})
	for _, text := range []string{b.String(), harmless("+\t" + evil)} {
		for _, bad := range []string{"\x1b", "\x07", "\u202e", "\u200b", "\r"} {
			if strings.Contains(text, bad) {
				t.Errorf("printed text %q contains %q", text, bad)
			}
		}
		if !strings.Contains(text, "gpj.exe") { // the control: the text is shown
			t.Errorf("printed text %q lacks the file name", text)
		}
	}
	if got := harmless("\ta\tb"); got != "\ta\tb" {
		t.Errorf("harmless changed tabs: got %q", got)
	}
}

func TestDiffColours(t *testing.T) {
	for line, want := range map[string]string{"+x": "32", "-x": "31", "@@ -1 +1 @@": "36", "+++ b/x": "1", " x": ""} {
		if got := colourOf(line); got != want {
			t.Errorf("colourOf(%q): got %s", line, got)
		}
	}
	if paint(false, "31", "x") != "x" || paint(true, "", "x") != "x" || paint(true, "31", "x") != "\x1b[31mx\x1b[0m" {
		t.Error("paint returned a wrong text")
	}
}

func TestCounts(t *testing.T) {
	if got := counts(3, 41, 7); got != "3 files changed, +41 −7" {
		t.Errorf("counts: got %q", got)
	}
	if got := counts(1, 0, 0); got != "1 file changed, +0 −0" {
		t.Errorf("counts: got %q", got)
	}
}
