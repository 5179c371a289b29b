package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/crannog/crannog"
)

// terminal is a command's connection to its caller: the standard streams and the output format.
type terminal struct {
	Stdin          *os.File
	Stdout, Stderr io.Writer
	json           bool // print JSON
	quiet          bool // print only IDs, and no progress
	verbose        bool // print each step
}

// note prints a message on standard error, unless --quiet is set.
func (t *terminal) note(format string, args ...any) {
	if !t.quiet {
		fmt.Fprintf(t.Stderr, "crannog: "+format+"\n", args...)
	}
}

// done prints the IDs for which the action succeeded.
func (t *terminal) done(ids []string) error {
	if t.json {
		if ids == nil {
			ids = []string{}
		}
		return t.object(ids)
	}
	for _, id := range ids {
		fmt.Fprintln(t.Stdout, id)
	}
	return nil
}

// confirm asks a person for confirmation. Without a terminal, --yes is required.
func (t *terminal) confirm(yes, nothing bool, what string) error {
	if yes || nothing {
		return nil
	}
	if !t.interactive() {
		return usagef("this would %s", what).hint("add --yes to confirm, or --dry-run to see the effect")
	}
	fmt.Fprintf(t.Stderr, "%s? [y/N] ", what)
	answer, err := bufio.NewReader(t.Stdin).ReadString('\n')
	if err != nil {
		return fail("read the answer", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return exitCode(codeFailed)
	}
	return nil
}

// size returns the size of the terminal.
func (t *terminal) size() (crannog.Size, bool) {
	cols, rows, err := term.GetSize(int(t.Stdin.Fd()))
	if err != nil || cols <= 0 || rows <= 0 || cols > 1<<15 || rows > 1<<15 {
		return crannog.Size{Cols: 80, Rows: 24}, false
	}
	return crannog.Size{Cols: uint16(cols), Rows: uint16(rows)}, true
}

// interactive reports whether standard input and standard output are both terminals.
func (t *terminal) interactive() bool {
	return t.Stdin != nil && term.IsTerminal(int(t.Stdin.Fd())) && isTerminal(t.Stdout)
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
