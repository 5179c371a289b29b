package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// essential are the programs that the examples may use. They are in Debian's essential packages,
// which every Debian machine has.
var essential = strings.Fields("sh sleep sort head date ls echo cat rm cp")

// TestF32ReadmeRunsOnABareMachine checks that the first examples of the README need only programs
// of a fresh Debian machine.
func TestF32ReadmeRunsOnABareMachine(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, try, _ := strings.Cut(string(text), "## Try it")
	_, try, _ = strings.Cut(try, "bin/crannog run ")
	try, _, _ = strings.Cut(try, "#")
	_, use, _ := strings.Cut(string(text), "## Use it\n\n```sh\n")
	use, _, found := strings.Cut(use, "```")
	if !found || strings.Count(use, "crannog ") < 5 {
		t.Fatalf("there are no examples to run: %q", use)
	}
	state := stateIn(t, "s")
	programs := t.TempDir()
	for _, name := range essential {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines("crannog run " + strings.TrimSpace(try) + "\n" + use) {
		line, _, _ = strings.Cut(line, " #")
		for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" '|;", r) }) {
			if path, err := exec.LookPath(word); err == nil && !strings.ContainsRune(word, '/') && word != "crannog" && !slices.Contains(essential, word) {
				t.Errorf("%q needs %s", line, path)
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", "crannog run "+try+"\n"+use)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=" + filepath.Dir(binary) + ":" + programs, "CRANNOG_STATE=" + state, "HOME=/nonexistent-home"}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "42\n") || !strings.Contains(string(out), "\nnote\n") {
		t.Errorf("the README's examples: error %v, output:\n%s", err, out)
	}
	if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) != 1 || left[0].Name() != "out.txt" {
		t.Errorf("the working directory contains %v, %v; want only out.txt", left, err)
	}
	servetest.NothingLeft(t, state)
}
