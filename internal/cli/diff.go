package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/host/text"
)

type diffFlags struct {
	selection
	nameOnly, stat, text bool
	exitCode             bool
}

func (a changeVerbs) diffCommand() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use: "diff [SANDBOX] [PATH...]", Short: "Show what a sandbox has changed",
		Long: "Show the change set of a sandbox below /workspace since its start, or the retained\n" +
			"changes of the last run in this directory. crannog apply applies changes to the\n" +
			"directory, crannog export writes them to a file. PATH is relative to /workspace, may\n" +
			"be a glob, and includes everything below it.",
		Example:           "  crannog diff\n  crannog diff --stat mybox\n  crannog diff mybox --since before-upgrade src/",
		ValidArgsFunction: a.completeOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(c *connection) error { return a.diff(cmd, c, &f, args) })
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.nameOnly, "name-only", false, "print names of files only")
	cmd.Flags().BoolVar(&f.stat, "stat", false, "print files with counts of lines")
	cmd.Flags().BoolVar(&f.text, "text", false, "print unified diffs (default)")
	cmd.Flags().BoolVar(&f.exitCode, "exit-code", false, "exit with 1 if something is changed")
	cmd.MarkFlagsMutuallyExclusive("name-only", "stat", "text")
	return cmd
}

func (a changeVerbs) diff(cmd *cobra.Command, c *connection, f *diffFlags, args []string) error {
	ctx := cmd.Context()
	t, err := a.changesOf(ctx, c, cmd, args)
	if err != nil {
		return err
	}
	stop := a.progress("comparing files")
	set, err := c.ChangesOf(ctx, t.id, f.options(t, !f.nameOnly && !a.quiet))
	stop()
	if err != nil {
		return fail("compare the files of "+t.name, err)
	}
	if err := a.showDiff(f, set); err != nil {
		return err
	}
	if f.exitCode && set.Files > 0 {
		return exitCode(codeFound)
	}
	return nil
}

func (a changeVerbs) showDiff(f *diffFlags, set api.Changes) error {
	switch {
	case a.json:
		return a.object(set)
	case f.nameOnly || a.quiet:
		for _, ch := range set.Changes {
			fmt.Fprintln(a.Stdout, inert(ch.Path))
		}
	case f.stat:
		listChanges(a.Stdout, set.Changes)
	default:
		for _, ch := range set.Changes {
			a.showText(ch)
		}
	}
	if set.Truncated {
		a.note("not all changes are shown")
	}
	if !isTerminal(a.Stderr) {
		return nil
	}
	if set.Files == 0 {
		a.note("no changes")
		return nil
	}
	a.note("%s", counts(set.Files, set.Added, set.Removed))
	return nil
}

// counts returns a summary of the changes in one line.
func counts(files, added, removed int) string {
	noun := "files"
	if files == 1 {
		noun = "file"
	}
	return fmt.Sprintf("%d %s changed, +%d −%d", files, noun, added, removed)
}

// listChanges prints one line for each change, with its flags.
func listChanges(w io.Writer, list []api.Change) {
	width := 0
	for _, ch := range list {
		width = max(width, len([]rune(inert(ch.Path))))
	}
	width = min(width, 60)
	for _, ch := range list {
		line := fmt.Sprintf("%-8s %-*s  %s", ch.Op, width, inert(ch.Path), amount(ch))
		if why := reasons(ch); why != "" {
			line += "  ! " + why
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// amount describes how much of a file changed.
func amount(ch api.Change) string {
	switch {
	case ch.Type == "link" && ch.Target != "":
		return "link to " + inert(ch.Target)
	case ch.Type != "file":
		return ch.Type
	case ch.Binary && ch.Op == "removed":
		return "binary"
	case ch.Binary:
		return "binary, " + bytesText(ch.Size)
	}
	return fmt.Sprintf("+%d −%d", ch.Added, ch.Removed)
}

// flagText returns a description of a flag for people.
func flagText(flag string) string {
	switch flag {
	case "runs_by_itself":
		return "tools run it by themselves"
	case "hidden_changed":
		return "its commits delete or change a hidden file: not exported"
	case "git_unchecked":
		return "its commits cannot be checked against hidden files: not exported"
	case "link_out":
		return "a link that points out of the workspace: not exported"
	case "setuid":
		return "setuid: not exported"
	case "special":
		return "not a regular file, directory or link: not exported"
	case "too_large":
		return "too large: not exported"
	case "secret_name":
		return "its name contains a secret: not exported"
	case "masked":
		return "contains a secret: exported with asterisks"
	}
	return flag
}

// reasons returns the flags of a change as text.
func reasons(ch api.Change) string {
	var why []string
	for _, f := range ch.Flags {
		if f != "conflict" {
			text := flagText(f)
			switch {
			case ch.Because == "":
			case f == "hidden_changed":
				text += " (" + inert(ch.Because) + ")"
			case f == "protected":
				text += " (it brings " + inert(ch.Because) + ")"
			}
			why = append(why, text)
		}
	}
	if ch.Conflict != "" {
		why = append(why, "conflict: "+strings.ReplaceAll(ch.Conflict, "_", " "))
	}
	return strings.Join(why, ", ")
}

// showText prints one change as a unified diff. On a terminal, control characters in the sandbox's
// text are removed. Elsewhere the text is unchanged, for git apply.
func (a changeVerbs) showText(ch api.Change) {
	text := ch.Text
	if text == "" {
		fmt.Fprintf(a.Stdout, "# %s %s (%s)\n", ch.Op, inert(ch.Path), amount(ch))
		return
	}
	if !isTerminal(a.Stdout) {
		fmt.Fprint(a.Stdout, text)
		return
	}
	colour := a.variable("NO_COLOR") == "" && a.variable("TERM") != "dumb"
	if why := reasons(ch); why != "" {
		fmt.Fprintln(a.Stdout, paint(colour, "33", "! "+inert(ch.Path)+": "+why))
	}
	for line := range strings.Lines(text) {
		line = harmless(strings.TrimSuffix(line, "\n"))
		fmt.Fprintln(a.Stdout, paint(colour, colourOf(line), line))
	}
}

// colourOf returns the escape code for a line of a unified diff, "" for none.
func colourOf(line string) string {
	switch {
	case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "diff "):
		return "1"
	case strings.HasPrefix(line, "@@"):
		return "36"
	case strings.HasPrefix(line, "+"):
		return "32"
	case strings.HasPrefix(line, "-"):
		return "31"
	}
	return ""
}

// paint returns text in a colour, if colour is true.
func paint(colour bool, code, text string) string {
	if !colour || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// longestLine bounds the printed length of one line, in bytes.
const longestLine = 64 << 10

// harmless returns a line of a file without characters that move the cursor or change the direction
// of writing, so that people see exactly what will be applied. Tabs are preserved.
func harmless(line string) string {
	parts := strings.Split(line, "\t")
	for i, p := range parts {
		parts[i] = text.Strict(p, longestLine)
	}
	return strings.Join(parts, "\t")
}
