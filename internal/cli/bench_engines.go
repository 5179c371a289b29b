package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/enginebench"
)

// benchCommand is the group of commands that measure this host.
func (a engineVerbs) benchCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure this host"}
	cmd.AddCommand(a.benchEnginesCommand())
	return cmd
}

func (a engineVerbs) benchEnginesCommand() *cobra.Command {
	var o enginebench.Options
	cmd := &cobra.Command{
		Use: "engines", Short: "Compare the engines of this host", Args: cobra.NoArgs,
		Long: "Do the same work in sandboxes of each engine that this host can run, in turns, and on\n" +
			"the host without a sandbox. The table has medians; in brackets is how many times as\n" +
			"long as on the host. Without --image, sandboxes run the host's programs, and engines\n" +
			"that need an image are left out; with it, all sandboxes run the image's programs. The\n" +
			"host's column always has the host's own. Below the table are the boundary of each\n" +
			"engine and what the escape suite found on it.\n\n" +
			"Memory is the fall of the host's available memory with 4 idle sandboxes, for each of\n" +
			"them. It is exact only if the host does nothing else.\n\n" +
			"A row about options that were used before needs a running server, because only a\n" +
			"server keeps sandboxes warm. Sandboxes have the policy level light, and no network\n" +
			"except with --url and --npm-project. With a server on another machine, there are no\n" +
			"figures of the host and of memory.",
		Example: "  crannog bench engines\n" +
			"  crannog bench engines --only create,exec --rounds 50\n" +
			"  crannog bench engines --image python:3.12-slim --json",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error { return a.benchEngines(ctx, c, o) })
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&o.Engines, "engine", nil, "`engines` to measure, separated by commas; all if absent. May be repeated")
	fl.StringVar(&o.Image, "image", "", "OCI `image` from which all sandboxes start")
	fl.StringSliceVar(&o.Only, "only", nil, "`measurements` to make, separated by commas: "+strings.Join(enginebench.IDs(enginebench.Options{URL: "x", Project: "x"}), ", "))
	fl.IntVar(&o.Rounds, "rounds", 10, "`number` of rounds of each measurement")
	fl.StringVar(&o.URL, "url", "", "also fetch this `URL` with curl, through the egress gateway")
	fl.StringVar(&o.Project, "npm-project", "", "also install the packages of the npm project in this `directory`, which needs a package-lock.json")
	a.offerEngines(cmd, "engine")
	return cmd
}

func (a engineVerbs) benchEngines(ctx context.Context, c *connection, o enginebench.Options) error {
	o.Remote = !c.local
	line := a.newProgress()
	show := func(text string) {
		if line != nil {
			line.show(text)
		}
	}
	report, err := enginebench.Run(ctx, enginebench.ServerLab{Client: c.Client, HasPool: !c.own}, o, show)
	if line != nil {
		line.end()
	}
	switch {
	case errors.Is(err, enginebench.ErrOptions):
		return usagef("%s", err.Error())
	case errors.Is(err, enginebench.ErrNoEngine):
		return errors.Join(a.printEngineReport(report), fail("measure the engines", err))
	case err != nil:
		return fail("measure the engines", err)
	}
	return a.printEngineReport(report)
}

// printEngineReport prints the measurements as a table, and what is known about each engine below.
func (a engineVerbs) printEngineReport(report enginebench.Report) error {
	if a.json {
		return a.object(report)
	}
	head := []string{"MEASUREMENT", "UNIT"}
	var cells [][]string
	var notes []string
	for i, row := range report.Measurements {
		line := []string{row.Title, row.Unit}
		var host float64
		for _, v := range row.Values {
			if i == 0 {
				head = append(head, v.On)
			}
			if v.On == enginebench.HostName {
				host = v.P50
			}
			line = append(line, engineCell(v, host))
			if text := v.Reason + v.Note; text != "" && v.On != enginebench.HostName {
				notes = append(notes, fmt.Sprintf("%s, %s: %s", row.Title, v.On, text))
			}
		}
		cells = append(cells, line)
	}
	if len(cells) > 0 {
		if err := table(a.Stdout, head, cells); err != nil {
			return err
		}
		fmt.Fprintln(a.Stdout)
	}
	return errors.Join(a.printMeasuredEngines(report), a.printNotes(notes))
}

// engineCell is a value of the table: the median, and its ratio to the host's.
func engineCell(v enginebench.Value, host float64) string {
	if v.N == 0 {
		return "-"
	}
	cell := threeDigits(v.P50)
	if v.On != enginebench.HostName && host > 0 {
		cell += fmt.Sprintf(" (%s×)", threeDigits(v.P50/host))
	}
	return cell
}

// threeDigits formats a figure with three significant digits and without an exponent.
func threeDigits(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

// printMeasuredEngines prints the boundary of each engine, its result in the escape suite, and why
// it was not measured.
func (a engineVerbs) printMeasuredEngines(report enginebench.Report) error {
	tw := tabwriter.NewWriter(a.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "ENGINE\tBOUNDARY\tESCAPE SUITE\tMEASURED")
	for _, e := range report.Engines {
		escapes := "not run"
		if e.Escapes != nil {
			escapes = fmt.Sprintf("%d of %d blocked", e.Escapes.Blocked, e.Escapes.Attempts)
			if e.Escapes.Harmless > 0 {
				escapes += fmt.Sprintf(", %d harmless", e.Escapes.Harmless)
			}
		}
		measured := "yes"
		if !e.Measured {
			measured = "no: " + strings.Join(slices.DeleteFunc([]string{e.Reason, e.Fix}, func(s string) bool { return s == "" }), "; ")
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", oneLine(e.Name), oneLine(e.Boundary), escapes, oneLine(measured))
	}
	fmt.Fprintln(tw)
	if m := report.Machine; m != nil {
		fmt.Fprintf(tw, "%d processors, %s of memory, Linux %s, load %s at the start, ",
			m.CPUs, bytesText(m.MemoryBytes), oneLine(m.Kernel), oneLine(m.Load))
	}
	fmt.Fprintf(tw, "%d rounds\n", report.Rounds)
	return tw.Flush()
}

// printNotes prints why values are missing, and what they contain.
func (a engineVerbs) printNotes(notes []string) error {
	for i, note := range notes {
		if i == 0 {
			fmt.Fprintln(a.Stdout)
		}
		if _, err := fmt.Fprintln(a.Stdout, oneLine(note)); err != nil {
			return err
		}
	}
	return nil
}
