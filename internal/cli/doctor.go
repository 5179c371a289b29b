package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	web "github.com/crannog/crannog/internal/frontend/console"
	"github.com/crannog/crannog/internal/server/standard"
	"github.com/crannog/crannog/internal/store"
)

// doctorVerbs is the command that examines this machine.
type doctorVerbs struct{ *app }

// finding is one line of doctor.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"` // ok, warn or fail
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

const (
	resultOK   = string(engine.ResultOK)
	resultWarn = string(engine.ResultWarn)
	resultFail = string(engine.ResultFail)
)

func (a doctorVerbs) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check whether sandboxes can run on this machine", Args: cobra.NoArgs,
		Long: "Check whether sandboxes can run on this machine, and which limits it can enforce.\n" +
			"Each line is ok, warn or fail, with a fix. The exit code is 0 if sandboxes can\n" +
			"run, also with warnings, and 1 if they cannot.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := a.examine(cmd.Context())
			if err := a.printFindings(findings); err != nil {
				return err
			}
			return verdict(findings)
		},
	}
}

// verdict returns the error for the exit code. Warnings do not count, because sandboxes can run in
// spite of them.
func verdict(findings []finding) error {
	for _, f := range findings {
		if f.Result == resultFail {
			return exitCode(codeFound)
		}
	}
	return nil
}

func (a doctorVerbs) examine(ctx context.Context) []finding {
	findings := append(a.checkEngines(ctx),
		checkMemory(), checkState(a.config.State), checkDisk(a.config.State), checkPort(ctx, a.config), a.checkProxies(), checkClock(), checkConsole())
	findings = append(findings, checkPrograms()...)
	findings = append(findings, checkPackages(ctx, a.config)...)
	return append(findings, a.checkCauseway(ctx)...)
}

// checkCauseway starts the egress gateway, or finds a running one, and reports how it is confined.
// A gateway that it started ends by itself.
func (a doctorVerbs) checkCauseway(ctx context.Context) []finding {
	const name = "causeway"
	if store.CheckPrivate(a.config.State) != nil {
		return nil // do not create files in another user's directory; checkState reports it
	}
	client, err := gateway.Connect(ctx, a.config.State, gateway.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return []finding{{name, resultWarn, "sandboxes cannot have a network: " + err.Error(), fault.HintOf(err)}}
	}
	r := client.Info().Confinement
	if err := client.Close(); err != nil {
		return []finding{{name, resultWarn, err.Error(), ""}}
	}
	var parts, lacks []string
	for _, c := range []struct {
		ok             bool
		property, lack string
	}{
		{r.UID != 0, fmt.Sprintf("user %d", r.UID), "it runs as root"},
		{!r.Capabilities, "no capabilities", "it has capabilities"},
		{r.NoNewPrivs, "no new privileges", "it may gain privileges"},
		{!r.Dumpable, "not traceable", "others can trace it"},
		{r.Seccomp, "seccomp", "no seccomp filter"},
		{r.Landlock > 0, fmt.Sprintf("landlock %d", r.Landlock), ""},
	} {
		switch {
		case c.ok:
			parts = append(parts, c.property)
		case c.lack != "":
			lacks = append(lacks, c.lack)
		}
	}
	findings := []finding{{name, resultOK, "can be started; " + strings.Join(parts, ", "), ""}}
	for _, note := range append(lacks, r.Notes...) {
		findings = append(findings, finding{name, resultWarn, note, ""})
	}
	return findings
}

// checkEngines returns the findings of each engine. Only the default engine is required. If another
// engine cannot run, that is a warning.
func (a doctorVerbs) checkEngines(ctx context.Context) []finding {
	engines, err := standard.Engines(standard.Options{
		State: a.config.State, Log: slog.New(slog.DiscardHandler), DefaultEngine: a.config.Engines.Default, Docker: standard.DockerOf(a.config), MicroVM: standard.MicroVMOf(a.config), NoDevice: standard.NoDevice(a.config),
	})
	if err != nil {
		return []finding{{"engine", resultFail, err.Error(), fault.HintOf(err)}}
	}
	findings := checkEngine(ctx, engines.Default())
	for _, other := range engines.All() {
		if other.Info().Name == engines.Default().Info().Name {
			continue
		}
		for _, f := range checkEngine(ctx, other) {
			if f.Result == resultFail {
				f.Result = resultWarn
			}
			f.Detail = other.Info().Name + ": " + f.Detail
			findings = append(findings, f)
		}
	}
	return findings
}

// checkEngine returns the findings of one engine about this host.
func checkEngine(ctx context.Context, eng engine.Engine) []finding {
	const name = "engine"
	var findings []finding
	for _, f := range eng.Probe(ctx) {
		findings = append(findings, finding{f.Check, string(f.Result), f.Detail, f.Fix})
	}
	if verdict(findings) != nil {
		return findings
	}
	info := eng.Info()
	findings = append(findings, ok(name, fmt.Sprintf("%s %s, boundary %s, enforces %v", info.Name, info.Version, info.Boundary, info.Enforces)))
	for _, note := range info.Notes {
		findings = append(findings, finding{name, resultWarn, note, ""})
	}
	return findings
}

// checkConsole never warns: sandboxes do not need the console.
func checkConsole() finding {
	if web.Built() {
		return ok("console", "embedded in this program")
	}
	return finding{"console", resultOK, web.NotBuilt, ""}
}

func (a doctorVerbs) printFindings(findings []finding) error {
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
