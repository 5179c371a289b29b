package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/drill"
	"github.com/crannog/crannog/internal/fault"
)

// drillVerbs are the commands that attack sandboxes of this host.
type drillVerbs struct{ *app }

// drillFlags select scenarios and engines.
type drillFlags struct {
	engines, only    []string
	scenarios, junit string
	// inside is set in the process that has the drill's namespaces.
	inside bool
}

func (a drillVerbs) command() *cobra.Command {
	var f drillFlags
	cmd := &cobra.Command{
		Use: "drill", Short: "Attack sandboxes of this host to see that the defences hold", Args: cobra.NoArgs,
		Long: "Run attacks in sandboxes of each engine that this host can run: a scripted agent obeys\n" +
			"a hostile instruction completely. Each attack is also made where the defence is\n" +
			"absent, and must succeed there, and its tools must work in the sandbox; otherwise the\n" +
			"drill proves nothing and fails.\n" +
			"The verdicts are held, broken, unproven and not run.\n\n" +
			"The drill uses an engine and a state directory of its own below the server's, and a\n" +
			"network in namespaces of its own with the attacker's servers, so nothing is sent to\n" +
			"other machines. Its sandboxes end with it, whatever ends it. It needs root. Scenarios\n" +
			"whose control is \"host\" run their script as root on the host too: read the scenarios\n" +
			"of others before you run them.\n" +
			"The exit code is 0 if all defences held, 1 if one did not or was not proved, 2 if\n" +
			"the drill could not run. docs/how-to/drill.md describes the files of scenarios.",
		Example: "  crannog drill\n" +
			"  crannog drill --engine jail --only 'dns-*' --json\n" +
			"  crannog drill --scenarios ./drills --junit drill.xml",
		Annotations:       map[string]string{"code": "check"},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.drill(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.engines, "engine", nil, "`engines` to attack, separated by commas; all if absent. May be repeated")
	fl.StringVar(&f.junit, "junit", "", "also write the results to this `file`, as JUnit XML")
	fl.BoolVar(&f.inside, "inside", false, "this process was started by crannog drill in new namespaces")
	_ = fl.MarkHidden("inside")
	f.add(cmd)
	cmd.AddCommand(a.listCommand())
	return cmd
}

func (f *drillFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.only, "only", nil, "only scenarios whose name or kind matches these `patterns`, separated by commas")
	cmd.Flags().StringVar(&f.scenarios, "scenarios", "", "also use the scenarios in this `directory`")
}

// load returns the selected scenarios.
func (f *drillFlags) load() ([]drill.Scenario, error) {
	all, err := drill.Load(f.scenarios)
	if err == nil {
		all, err = drill.Select(all, f.only)
	}
	if err != nil {
		return nil, usagef("%s", err.Error()).hint("crannog drill ls")
	}
	return all, nil
}

func (a drillVerbs) listCommand() *cobra.Command {
	var f drillFlags
	cmd := &cobra.Command{
		Use: "ls", Short: "List the scenarios", Args: cobra.NoArgs,
		Long:              "List the scenarios of crannog drill: what the attack does, and what must stop it.",
		Example:           "  crannog drill ls\n  crannog drill ls --only exfiltration --json",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			all, err := f.load()
			if err != nil {
				return err
			}
			if a.json {
				return a.object(all)
			}
			rows := make([][]string, 0, len(all))
			for _, s := range all {
				rows = append(rows, []string{s.Name, s.Kind, s.Defence, s.Title})
			}
			return table(a.Stdout, []string{"NAME", "KIND", "DEFENCE", "ATTACK"}, rows)
		},
	}
	f.add(cmd)
	return cmd
}

func (a drillVerbs) drill(ctx context.Context, f drillFlags) error {
	scenarios, err := f.load()
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return fail("run the drill", fault.New(fault.Denied, "drill_needs_root", "a drill creates network namespaces, which needs root")).
			hint("sudo crannog drill")
	}
	if !f.inside {
		return a.startInside(ctx)
	}
	if err := drill.Separate(); err != nil {
		return fail("run the drill", fault.New(fault.Denied, "drill_not_separate", err.Error())).
			hint("crannog drill, without --inside")
	}
	if drill.First() {
		return a.runFirst()
	}
	report, err := a.runInside(ctx, f, scenarios)
	if err != nil {
		return err
	}
	if f.junit != "" {
		if err := writeJUnit(f.junit, report); err != nil {
			return fail("write the results", err)
		}
	}
	if err := a.printDrill(report); err != nil {
		return err
	}
	if !report.Passed() {
		return exitCode(codeFound)
	}
	return nil
}

// startInside starts this program again with the same arguments in namespaces of its own, which end
// with this process, whatever ends it.
func (a drillVerbs) startInside(ctx context.Context) error {
	return interruptible(ctx, func(ctx context.Context) error {
		args := append(append([]string{}, a.args...), "--inside")
		code, err := drill.Start(ctx, args, a.vars, a.Stdin, a.Stdout, a.Stderr)
		if err != nil {
			return fail("run the drill in namespaces of its own", err)
		}
		if code != 0 {
			return exitCode(code)
		}
		return nil
	})
}

// runFirst runs the first process of the drill's namespaces.
func (a drillVerbs) runFirst() error {
	code, err := drill.RunFirst(a.args, a.vars)
	if err != nil {
		return fail("prepare the drill's namespaces", err).hint("crannog drill, without --inside")
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

func (a drillVerbs) runInside(ctx context.Context, f drillFlags, scenarios []drill.Scenario) (report drill.Report, err error) {
	base := filepath.Join(a.config.State, "drill")
	files := filepath.Join(base, "files")
	a.config.State, a.config.Client.URL = filepath.Join(base, "state"), ""
	err = interruptible(ctx, func(ctx context.Context) error {
		lab, err := drill.NewLab(ctx, files)
		if err != nil {
			return fail("prepare the drill", err).hint("crannog doctor shows what this machine lacks")
		}
		defer lab.Close()
		return a.with(ctx, func(c *connection) error {
			line := a.newProgress()
			show := func(text string) {
				if line != nil {
					line.show(text)
				}
			}
			report, err = lab.Run(ctx, c.Client, drill.Options{Engines: f.engines, Scenarios: scenarios, Files: files}, show)
			if line != nil {
				line.end()
			}
			if errors.Is(err, drill.ErrOptions) {
				return usagef("%s", err.Error())
			}
			if err != nil {
				return fail("run the drill", err)
			}
			return nil
		})
	})
	return report, err
}

// writeJUnit replaces the file of an earlier run. A link of this name is replaced too, and not
// followed.
func writeJUnit(path string, report drill.Report) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(drill.WriteJUnit(f, report), f.Close())
}

func (a drillVerbs) printDrill(report drill.Report) error {
	if a.json {
		return a.object(report)
	}
	rows := make([][]string, 0, len(report.Results))
	for _, r := range report.Results {
		detail := r.Reason
		if detail == "" {
			detail = strings.Join(r.Stopped, ", ")
		}
		rows = append(rows, []string{r.Engine, r.Name, string(r.Verdict), r.Defence, detail})
	}
	if err := table(a.Stdout, []string{"ENGINE", "SCENARIO", "VERDICT", "DEFENCE", "DETAIL"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.Stdout, "\n%d held, %d broken, %d unproven, %d not run\n", report.Held, report.Broken, report.Unproven, report.NotRun)
	return err
}
