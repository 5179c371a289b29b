package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/host/text"
)

// logVerbs are the commands about the output of sandboxes.
type logVerbs struct{ *app }

func (a logVerbs) logsCommand() *cobra.Command {
	var follow, replay bool
	var f listFlags
	var p player
	cmd := &cobra.Command{
		Use: "logs SANDBOX [N]", Short: "Show a sandbox's events and the output of its commands", Args: cobra.RangeArgs(1, 2),
		Long: "Show a sandbox's events: its creation, the commands that ran and their exit codes,\n" +
			"and its end. With the number N of a command, show the output of that command. With\n" +
			"-f, follow: with N until that command ends, without N until the sandbox ends, with\n" +
			"the output of the last command and of all later ones.\n\n" +
			"With --replay, replay the recording of command N, or of the last one, at its\n" +
			"original pace. Secrets in output are redacted; control sequences that do not draw\n" +
			"are removed. With --json, the output of one command is its recording in asciicast\n" +
			"format.\n\n" +
			"The recordings of a run are retained as long as its changes, also after its sandbox\n" +
			"has ended: crannog logs @last shows them.",
		Example:           "  crannog logs dev\n  crannog logs -f dev\n  crannog logs -f dev 3\n  crannog logs @last --replay\n  crannog logs dev --replay 3 --speed 2\n  crannog logs dev --replay --json > dev.cast",
		ValidArgsFunction: a.completeEnded,
		RunE: func(cmd *cobra.Command, args []string) error {
			n := ""
			if len(args) == 2 {
				n = args[1]
				if k, err := strconv.Atoi(n); err != nil || k < 1 {
					return usagef("%q is not the number of a command", n).hint("crannog logs " + args[0] + " shows the numbers")
				}
			}
			p.paced = cmd.Flags().Changed("speed") || isTerminal(a.Stdout)
			switch {
			case n != "" && !replay && (f.jsonl || f.format != ""):
				return usagef("the output of one command excludes --jsonl and --format").hint("--json prints it as asciicast")
			case replay && (follow || f.jsonl || f.format != ""):
				return usagef("--replay excludes --follow, --jsonl and --format")
			case replay && (!(p.speed > 0) || p.speed > maxSpeed):
				return usagef("--speed: %v is not between 0 and %d", p.speed, maxSpeed)
			}
			return a.with(cmd.Context(), func(c *connection) error {
				of, err := c.subject(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if replay {
					return a.replay(cmd.Context(), of, n, &p)
				}
				if n != "" {
					return a.output(cmd.Context(), of, n, follow)
				}
				return a.follow(cmd.Context(), of, &f, follow)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more, and show the output of commands")
	cmd.Flags().BoolVar(&replay, "replay", false, "replay the output of command N, or of the last one")
	cmd.Flags().Float64Var(&p.speed, "speed", 1, "speed factor; without a terminal and this flag, all is printed at once")
	cmd.Flags().DurationVar(&p.idle, "idle-limit", 2*time.Second, "longest pause in a replay; 0 keeps the original pauses")
	return cmd
}

// follow prints the log. With more it then waits for new lines and prints them.
func (a logVerbs) follow(ctx context.Context, of subject, f *listFlags, more bool) error {
	if more && a.json {
		// A JSON array would never be closed.
		f.jsonl = true
	}
	interrupt, stop := notify(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := &outputFollower{app: a.app, of: of, f: f, known: map[string]chan struct{}{}, reported: map[string]bool{}}
	defer out.copies.Wait()
	defer stop()
	for shown := -1; ; {
		ended := !more || of.hasEnded(ctx)
		entries, err := of.logs(ctx)
		if err != nil {
			return fail("read the log of "+of.id, err)
		}
		commands, err := of.recordings(ctx)
		if err != nil {
			return err
		}
		lines := slices.Clone(entries[min(max(0, shown), len(entries)):])
		newLines, started := out.lines(commands, more, shown >= 0)
		lines = append(lines, newLines...)
		slices.SortStableFunc(lines, func(x, y api.LogEntry) int { return x.At.Compare(y.At) })
		if len(lines) > 0 || !more {
			if err := out.log(lines); err != nil {
				return err
			}
		}
		shown = len(entries)
		for _, c := range started {
			out.follow(interrupt, c)
		}
		if ended {
			out.copies.Wait()
			lastLines, _ := out.lines(commands, more, true)
			if len(lastLines) > 0 {
				return out.log(lastLines)
			}
			return nil
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-interrupt.Done():
			return nil
		}
	}
}

// commandLine returns a command as a line of the log.
func commandLine(c api.Recording) api.LogEntry {
	e := api.LogEntry{At: c.StartedAt, Level: "info", Message: "command " + c.ID, Fields: map[string]string{"command": commandText(c.Command)}}
	if c.How != "start" {
		e.Fields["how"] = c.How
	}
	switch {
	case c.EndedAt.IsZero():
		e.Fields["state"] = "running"
	default:
		e.Fields["took"] = c.EndedAt.Sub(c.StartedAt).Round(time.Millisecond).String()
	}
	if c.ExitCode != nil {
		e.Fields["exit"] = strconv.Itoa(*c.ExitCode)
	}
	if c.Error != "" {
		e.Fields["error"] = c.Error
	}
	switch {
	case c.Lost && c.How == howConnect:
		e.Fields["state"] = "left" // a follower; the command has an entry of its own
	case c.Lost:
		e.Fields["state"] = "lost"
	}
	for name, is := range map[string]bool{"truncated": c.Truncated, "dropped": c.Dropped} {
		if is {
			e.Fields["recording"] = cmp.Or(e.Fields["recording"], name)
		}
	}
	return e
}

// commandText returns a command on one line.
func commandText(argv []string) string {
	quoted := make([]string, len(argv))
	for i, arg := range argv {
		if quoted[i] = arg; arg == "" || strings.ContainsAny(arg, " \t\n'\"\\$`;|&<>(){}*?") {
			quoted[i] = strconv.Quote(arg)
		}
	}
	return text.Strict(strings.Join(quoted, " "), 200)
}

func (a logVerbs) printLog(f *listFlags, entries []api.LogEntry) error {
	if f.jsonl || f.format != "" || a.json {
		return list(&a.terminal, f, entries, func(e api.LogEntry) string { return e.Message }, nil, nil)
	}
	for _, e := range entries {
		var line strings.Builder
		line.WriteString(e.At.Local().Format("2006-01-02 15:04:05.000") + " " + fmt.Sprintf("%-5s", e.Level) + " " + e.Message)
		for _, k := range sortedKeys(e.Fields) {
			line.WriteString(" " + k + "=" + e.Fields[k])
		}
		fmt.Fprintln(a.Stdout, oneLine(line.String()))
	}
	return nil
}
