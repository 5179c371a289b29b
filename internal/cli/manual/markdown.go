package manual

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Begin is the line of the page after which Markdown's output starts.
const Begin = "<!-- Generated from the command table: go test ./internal/cli -run TestCommandReference -update -->"

// Markdown returns the reference of all commands: a table, one section for each topic of help
// and one for each command.
func Markdown(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("\n## Commands\n\n| command | what it does |\n|---|---|\n")
	var commands, topics []*cobra.Command
	for _, cmd := range tree(root)[1:] {
		if isTopic(cmd) {
			topics = append(topics, cmd)
			continue
		}
		commands = append(commands, cmd)
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", cmd.CommandPath(), pageName(cmd), strings.ReplaceAll(cmd.Short, "|", `\|`))
	}
	b.WriteString("\nEvery command takes these flags:\n\n")
	fenced(&b, strings.TrimRight(root.PersistentFlags().FlagUsages(), "\n"))
	for _, cmd := range topics {
		fmt.Fprintf(&b, "\n## %s\n\n", heading(cmd.Name()))
		fenced(&b, text(cmd))
	}
	b.WriteString("\n## Each command\n")
	for _, cmd := range commands {
		fmt.Fprintf(&b, "\n### %s\n\n", cmd.CommandPath())
		fenced(&b, help(cmd))
	}
	return b.String()
}

// help returns the output of crannog help about a command, without the flags that every command
// has.
func help(cmd *cobra.Command) string {
	var b strings.Builder
	b.WriteString(text(cmd) + "\n")
	if cmd.Runnable() {
		fmt.Fprintf(&b, "\nUsage:\n  %s\n", cmd.UseLine())
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", strings.Trim(cmd.Example, "\n"))
	}
	if flags := cmd.NonInheritedFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", flags.FlagUsages())
	}
	return strings.TrimRight(b.String(), "\n")
}

// fenced writes text as a code block.
func fenced(b *strings.Builder, text string) { fmt.Fprintf(b, "```text\n%s\n```\n", text) }

// heading returns the name of a topic as a heading.
func heading(name string) string {
	words := strings.ReplaceAll(name, "-", " ")
	return strings.ToUpper(words[:1]) + words[1:]
}
