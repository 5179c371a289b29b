// Command bench produces the figures of docs/internals/performance.md. In one run, it measures
// sandboxes and their alternatives in turns, and prints them side by side.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/host/reexec"
)

// group is a set of figures that can be selected by name.
type group struct {
	name string
	run  func(context.Context, *bench) error
}

var groups = []group{
	{"create", createFigures},
	{"images", imageFigures},
	{"steps", stepFigures},
	{"exec", execFigures},
	{"jail", jailFigures},
	{"microvm", machineFigures},
	{"wasm", wasmFigures},
	{"python", pythonFigures},
	{"crowd", crowdFigures},
	{"burst", burstFigures},
	{"busy", busyFigures},
	{"files", fileFigures},
	{"streams", streamFigures},
	{"interpreter", interpreterFigures},
	{"memory", memoryFigures},
	{"thousand", thousandFigures},
	{"state", stateFigures},
	{"record", recordFigures},
	{"tti", ttiFigures},
	{"loaded", loadedFigures},
	{"humaneval", humanevalFigures},
	{"cost", costFigures},
	{"net", netFigures},
	{"netbytes", netByteFigures},
	{"netkinds", netKindFigures},
	{"netrules", netRuleFigures},
	{"netcrowd", netCrowdFigures},
	{"netcreate", netCreateFigures},
	{"packages", packageFigures},
}

// bench is one run: its options, its paths and its results.
type bench struct {
	flags
	dir    string // temporary directory, removed at the end
	report *report
}

type flags struct {
	only    string
	n       int
	json    bool
	crannog string
	own     string
	runsc   string
	earlier string
	python  string
	crowd   int
	idle    int
	npm     string
}

// parse parses the command line.
func parse(args []string, stderr io.Writer) (flags, error) {
	var f flags
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&f.only, "only", "", "comma-separated `groups`: "+strings.Join(groupNames(), ","))
	set.IntVar(&f.n, "n", 20, "`rounds` of quick measurements; slower ones get fewer")
	set.BoolVar(&f.json, "json", false, "print JSON")
	set.StringVar(&f.crannog, "crannog", "bin/crannog", "`binary` under test")
	set.StringVar(&f.own, "own-guest", "", "`binary` without the small guest inside, for the memory group")
	set.StringVar(&f.runsc, "runsc", "", "stock runsc `binary` to compare with")
	set.StringVar(&f.earlier, "earlier", "", "`binary` of an earlier build, with which the groups state (instead of its other measurements) and images run in turns")
	set.StringVar(&f.python, "python", "/usr/bin/python3", "the python3 that sandboxes see, run bare")
	set.IntVar(&f.crowd, "crowd", 100, "`sandboxes` at once in the crowd group")
	set.IntVar(&f.idle, "idle", 1000, "idle `sandboxes` in the thousand group")
	set.StringVar(&f.npm, "npm", "tests/e2b", "`directory` with the npm client, for the tti group")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if f.n < 1 || f.crowd < 1 || f.idle < 1 {
		return f, errors.New("-n, -crowd and -idle must be at least 1")
	}
	for _, name := range f.selectedGroups() {
		if !slices.Contains(groupNames(), name) {
			return f, fmt.Errorf("no group %q; there are %s", name, strings.Join(groupNames(), ", "))
		}
	}
	return f, nil
}

func groupNames() []string {
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	return names
}

// selectedGroups returns the names of the groups to run.
func (f flags) selectedGroups() []string {
	if f.only == "" {
		return groupNames()
	}
	return strings.Split(f.only, ",")
}

// fewer returns the number of rounds for a measurement that takes the given number of times as long
// as a quick one. It is at least three, or n.
func (f flags) fewer(part int) int { return max(min(3, f.n), f.n/part) }

func main() {
	// Dispatch first, because sandboxes are processes of this program.
	reexec.Dispatch(append(netRoles(), throttleRole())...)
	crannog.Main()
	f, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	// A broken stream of a sandbox must not end this process with SIGPIPE.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err = run(ctx, f, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run runs the selected groups and prints their report.
func run(ctx context.Context, f flags, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "crannog-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{flags: f, dir: dir, report: &report{Host: describeHost()}}
	if !f.json {
		b.report.live = out
		b.report.printHost()
	}
	began := time.Now()
	for _, g := range groups {
		if !slices.Contains(f.selectedGroups(), g.name) {
			continue
		}
		if err := g.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	if f.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(b.report)
	}
	_, err = fmt.Fprintf(out, "\nall in %s, load at the end %s\n", time.Since(began).Round(time.Second), loadAverage())
	return err
}
