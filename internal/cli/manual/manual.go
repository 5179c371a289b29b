// Package manual generates the man pages, and the list of commands in docs/reference/cli.md, from
// the command definitions. These also produce the output of crannog help, so that the texts cannot
// differ.
package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Page is one man page.
type Page struct {
	// Name is the page's name without its section, for example crannog-net-log.
	Name string
	// Section is 1 for commands and 7 for topics of help.
	Section int
	Text    string
}

// Path returns where man looks for the page below a directory of manuals.
func (p Page) Path() string {
	return filepath.Join(fmt.Sprintf("man%d", p.Section), fmt.Sprintf("%s.%d", p.Name, p.Section))
}

// Pages returns the man pages of a command and of everything below it.
func Pages(root *cobra.Command, version string) []Page {
	var pages []Page
	for _, cmd := range tree(root) {
		pages = append(pages, Page{Name: pageName(cmd), Section: section(cmd), Text: roff(cmd, version)})
	}
	return pages
}

// Write writes pages below a directory of manuals and returns the paths of the files.
func Write(dir string, pages []Page) ([]string, error) {
	var written []string
	for _, page := range pages {
		path := filepath.Join(dir, page.Path())
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return written, err
		}
		if err := os.WriteFile(path, []byte(page.Text), 0o644); err != nil {
			return written, err
		}
		written = append(written, path)
	}
	return written, nil
}

// tree returns a command and the documented ones below it, parents first.
func tree(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range children(cmd) {
		all = append(all, tree(sub)...)
	}
	return all
}

// children returns the commands and topics below a command that are not hidden.
func children(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(sub *cobra.Command) bool {
		return !sub.IsAvailableCommand() && !isTopic(sub)
	})
}

// isTopic reports whether a command only prints a text of crannog help.
func isTopic(cmd *cobra.Command) bool { return cmd.IsAdditionalHelpTopicCommand() && !cmd.Hidden }

// section returns the section of the manual for a command.
func section(cmd *cobra.Command) int {
	if isTopic(cmd) {
		return 7
	}
	return 1
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// text returns the description of a command's help, without the usage and the flags.
func text(cmd *cobra.Command) string {
	if cmd.Long != "" {
		var b strings.Builder
		for l := range strings.SplitSeq(strings.TrimSpace(cmd.Long), "\n") {
			b.WriteString(strings.TrimRight(l, " ") + "\n")
		}
		return strings.TrimSuffix(b.String(), "\n")
	}
	return strings.TrimSuffix(cmd.Short, ".") + "."
}
