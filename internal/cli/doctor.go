package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/standard"
)

// finding is one line of doctor.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"` // ok, warn or fail
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

const (
	resultOK   = "ok"
	resultWarn = "warn"
	resultFail = "fail"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look for what keeps sandboxes from running well here", Args: cobra.NoArgs,
		Long: "Look for what keeps sandboxes from running well on this machine. Each line is ok,\nwarn or fail, with what to do. The exit code is 0 if all is well, 1 if something\nwas found, 2 if sandboxes cannot run.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := a.examine(cmd.Context())
			if err := a.printFindings(findings); err != nil {
				return err
			}
			return verdict(findings)
		},
	}
}

// verdict makes the exit code.
func verdict(findings []finding) error {
	worst := 0
	for _, f := range findings {
		switch f.Result {
		case resultFail:
			worst = 2
		case resultWarn:
			worst = max(worst, 1)
		}
	}
	if worst == 0 {
		return nil
	}
	return exitCode(worst)
}

func (a *app) examine(ctx context.Context) []finding {
	findings := []finding{
		checkKernel(), checkUserNamespaces(), checkAppArmor(), checkCgroups(), checkTracing(),
		checkMemory(), checkState(a.config.State), checkDisk(a.config.State), checkPort(ctx, a.config), checkClock(),
	}
	findings = append(findings, checkPrograms()...)
	return append(findings, a.checkEngine(ctx)...)
}

// checkEngine asks the engine itself, whose word counts most.
func (a *app) checkEngine(ctx context.Context) []finding {
	const name = "engine"
	eng, err := standard.Engine(a.config.State, slog.New(slog.DiscardHandler))
	if err != nil {
		return []finding{{name, resultFail, err.Error(), fault.HintOf(err)}}
	}
	info := eng.Info()
	if err := eng.Probe(ctx); err != nil {
		return []finding{{name, resultFail, info.Name + ": " + err.Error(), fault.HintOf(err)}}
	}
	findings := []finding{{name, resultOK, fmt.Sprintf("%s %s, boundary %s, enforces %v", info.Name, info.Version, info.Boundary, info.Enforces), ""}}
	for _, note := range info.Notes {
		findings = append(findings, finding{name, resultWarn, note, ""})
	}
	return findings
}

func (a *app) printFindings(findings []finding) error {
	if a.json {
		return a.object(findings)
	}
	for _, f := range findings {
		if a.quiet && f.Result == resultOK {
			continue
		}
		fmt.Fprintf(a.Stdout, "%-4s  %-16s %s\n", f.Result, f.Check, oneLine(f.Detail))
		if f.Fix != "" {
			fmt.Fprintf(a.Stdout, "      fix: %s\n", oneLine(f.Fix))
		}
	}
	return nil
}
