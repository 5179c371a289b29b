package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

func (a listVerbs) psCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "ps SANDBOX", Short: "List the processes of a sandbox, with the command that started each", Args: cobra.ExactArgs(1),
		Long: "List all processes of a sandbox. FROM is the number of the command that a process\n" +
			"descends from, also if the process has its own session. \"ended\" means that the\n" +
			"command has ended and left the process in the background. To end such a process, use\n" +
			"its PID: crannog exec SANDBOX -- kill PID.",
		ValidArgsFunction: a.completeOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSandbox(cmd.Context(), args[0], func(_ *connection, sb *crannog.Sandbox) error {
				all, err := sb.AllProcesses(cmd.Context())
				if err != nil {
					return fail("list the processes of "+sb.ID(), err)
				}
				if all.Cut {
					a.note("not all processes are listed")
				}
				head := []string{"PID", "PARENT", "USER", "CPU", "MEMORY", "FROM", "COMMAND"}
				return list(&a.terminal, &f, all.Processes, func(p api.Process) string { return strconv.Itoa(p.PID) }, head, psRow)
			})
		},
	}
	f.add(cmd)
	return cmd
}

func psRow(p api.Process) []string {
	return []string{
		strconv.Itoa(p.PID), strconv.Itoa(p.Parent), cmp.Or(p.User, strconv.FormatUint(uint64(p.UID), 10)),
		fmt.Sprintf("%.1fs", p.CPUSeconds), bytesText(p.MemoryBytes), commandCell(p), strings.Join(p.Args, " "),
	}
}

// fromWidth is the maximum width of a command in the FROM column.
const fromWidth = 40

// commandCell returns the FROM cell of a process. The row of a command's own process shows only the
// number.
func commandCell(p api.Process) string {
	c := p.Command
	if c == nil {
		return ""
	}
	if c.PID == p.PID && !c.Ended {
		return c.Tag
	}
	line := []rune(strings.Join(c.Args, " "))
	if len(line) > fromWidth {
		line = append(line[:fromWidth-1], '…')
	}
	text := fmt.Sprintf("%d %s", c.PID, string(line))
	if c.Ended {
		text += " (ended)"
	}
	return text
}
