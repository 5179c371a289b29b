package cli

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/cli/manual"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var update = flag.Bool("update", false, "write the list of commands in docs/reference/cli.md")

// The list of commands in docs/reference/cli.md equals the program's help texts.
func TestCommandReference(t *testing.T) {
	const file = "../../docs/reference/cli.md"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	written, _, found := strings.Cut(string(old), manual.Begin)
	if !found {
		t.Fatalf("%s has no line %s", file, manual.Begin)
	}
	root := newApp(Env{Version: "v9"}).root()
	root.InitDefaultHelpCmd()
	want := written + manual.Begin + "\n" + manual.Markdown(root)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(old) != want {
		t.Errorf("%s is stale: %s", file, strings.Trim(manual.Begin, "<!-> "))
	}
}

// Every command and every topic of help has a page, and no page has an unknown roff request.
func TestManPagesCoverCommands(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	if code, stdout, stderr := run(t, "man", dir); code != 0 || stdout != "" || !strings.Contains(stderr, "wrote") {
		t.Fatalf("run: got %d, %q, %q", code, stdout, stderr)
	}
	_, tree, _ := run(t, "help", "--tree")
	commands := strings.Count(tree, "\n")
	pages, err := filepath.Glob(filepath.Join(dir, "man[17]", "crannog*.[17]"))
	if err != nil || len(pages) < commands || commands < 60 {
		t.Errorf("%d pages of %d commands: %v", len(pages), commands, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "man1", "crannog-run.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`.TH "CRANNOG\-RUN" "1"`, `\fB\-\-allow\fR`, `\fBcrannog\fR(1)`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("crannog-run.1 has no %s", want)
		}
	}
	if code, _, stderr := run(t, "man"); code != codeUsage {
		t.Errorf("man without a directory: got exit code %d, %s", code, stderr)
	}
	blocked := filepath.Join(dir, "man1", "crannog.1")
	if code, _, stderr := run(t, "man", blocked); code != 1 || !strings.Contains(stderr, "write the man pages") {
		t.Errorf("man below a file: got exit code %d, %s", code, stderr)
	}
	t.Run("groff", func(t *testing.T) {
		hosttest.Need(t, hosttest.Program("groff"))
		const groff = "groff"
		for _, page := range pages {
			if out := warnings(t, groff, page); out != "" {
				t.Errorf("warnings(%s): got %s", page, out)
			}
		}
		// The control: groff reports a request that does not exist.
		wrong := filepath.Join(dir, "wrong.1")
		if err := os.WriteFile(wrong, []byte(".TH X 1\n.SH NAME\nx \\- y\n.NOSUCH z\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if warnings(t, groff, wrong) == "" {
			t.Error("groff does not report an unknown request")
		}
	})
}

// warnings returns what groff reports about a man page.
func warnings(t *testing.T, groff, page string) string {
	t.Helper()
	var reported bytes.Buffer
	cmd := exec.CommandContext(t.Context(), groff, "-man", "-Tutf8", "-Kutf8", "-ww", "-z", page)
	cmd.Stderr = &reported
	if err := cmd.Run(); err != nil {
		return err.Error() + reported.String()
	}
	return reported.String()
}

func TestCompletionScripts(t *testing.T) {
	for shell, want := range map[string]string{
		"bash": "complete -o default -F __start_crannog crannog", "zsh": "#compdef crannog",
		"fish": "complete -c crannog", "powershell": "Register-ArgumentCompleter",
	} {
		for _, flags := range [][]string{nil, {"--no-descriptions"}} {
			if code, stdout, stderr := run(t, append([]string{"completion", shell}, flags...)...); code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("run(%s, %v): got %d, %s", shell, flags, code, stderr)
			}
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "csh"}} {
		if code, stdout, _ := run(t, args...); code != codeUsage || stdout != "" {
			t.Errorf("run(%v): got %d, %s", args, code, stdout)
		}
	}
}
