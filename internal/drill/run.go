package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

const (
	// lifetime ends a sandbox that this process could not remove because it was killed.
	lifetime = 10 * time.Minute
	// attackSeconds is the time limit of an attack without one of its own.
	attackSeconds = 30
	// arrival bounds the wait for what a control has sent.
	arrival = 10 * time.Second
)

// Options select what is run.
type Options struct {
	// Engines are the engines to attack; none means all that the host can run.
	Engines   []string
	Scenarios []Scenario
	// Files is a directory of the host for the files of the attacks, as for NewLab. Beside it is the
	// directory state of the server that runs the drill.
	Files string
}

// drill is a running drill.
type drill struct {
	client *crannog.Client
	net    *internet
	files  string
}

// Lab is the network of a drill.
type Lab struct{ net *internet }

// NewLab creates the network of a drill in the namespaces of this process.
func NewLab(ctx context.Context, files string) (*Lab, error) {
	if err := os.MkdirAll(files, 0o755); err != nil { //nolint:gosec // attacks must fail because of the sandbox, and not of the mode
		return nil, err
	}
	// A drill that was killed has left them.
	old, err := filepath.Glob(filepath.Join(files, "attempt-*"))
	for _, dir := range old {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return nil, err
	}
	n, err := newInternet(ctx, files)
	if err != nil {
		return nil, err
	}
	return &Lab{n}, nil
}

// Close ends the network.
func (l *Lab) Close() error { return l.net.Close() }

// Run runs the scenarios on each engine, and calls show before each.
func (l *Lab) Run(ctx context.Context, client *crannog.Client, o Options, show func(string)) (Report, error) {
	report := Report{Results: []Result{}}
	engines, err := client.Engines(ctx)
	if err != nil {
		return report, fmt.Errorf("list the engines: %w", err)
	}
	for _, name := range o.Engines {
		if !slices.ContainsFunc(engines, func(e api.Engine) bool { return e.Name == name }) {
			return report, fmt.Errorf("%w: there is no engine %q", ErrOptions, name)
		}
	}
	d := &drill{client: client, net: l.net, files: o.Files}
	for _, e := range engines {
		if len(o.Engines) > 0 && !slices.Contains(o.Engines, e.Name) {
			continue
		}
		reason := unusable(e)
		for _, s := range o.Scenarios {
			if err := ctx.Err(); err != nil {
				return report, context.Cause(ctx)
			}
			if reason != "" {
				report.add(Result{Scenario: s, Engine: e.Name, Verdict: NotRun, Reason: reason})
				continue
			}
			show(e.Name + ": " + s.Name)
			report.add(d.run(ctx, e, s))
		}
	}
	return report, nil
}

// unusable returns why the scenarios cannot run on an engine, or "".
func unusable(e api.Engine) string {
	switch {
	case !e.Available:
		return "the engine is not available: " + e.Reason
	case !slices.Contains(e.Images, "host-view"):
		return "the engine does not start from the host's programs, which the attacks use"
	}
	return ""
}

// run makes the attack in a sandbox, and then its control. The defended sandbox comes first: what
// it sends late is still found after the control.
func (d *drill) run(ctx context.Context, e api.Engine, s Scenario) Result {
	r := Result{Scenario: s, Engine: e.Name, Verdict: Unproven}
	for _, program := range s.Needs {
		if _, err := exec.LookPath(program); err != nil {
			r.Verdict, r.Reason = NotRun, "the host has no program "+program
			return r
		}
	}
	defended, err := d.attempt(ctx, s)
	if err != nil {
		r.Reason = err.Error()
		return r
	}
	defer defended.remove()
	r.Stopped, err = defended.inSandbox(ctx, e, s.Sandbox, defaultLevel(e.Boundary), true)
	if err != nil {
		r.Reason = "the attack could not be made: " + err.Error()
		return r
	}
	control, err := d.attempt(ctx, s)
	if err != nil {
		r.Reason = err.Error()
		return r
	}
	defer control.remove()
	if s.Control.On == OnHost {
		err = control.onHost(ctx)
	} else {
		_, err = control.inSandbox(ctx, e, s.Control.Settings, "minimal", false)
	}
	if err == nil {
		err = control.await(ctx)
	}
	success, checkErr := defended.succeeded()
	switch {
	case checkErr != nil:
		r.Reason = "the attack's result cannot be read: " + checkErr.Error()
	case success:
		r.Verdict, r.Reason = Broken, "the attack reached its goal: "+s.Title
	case err != nil:
		r.Reason = "the control failed: " + err.Error()
	default:
		r.Verdict = Held
	}
	return r
}

// defaultLevel returns the level of a sandbox for which its scenario names none.
func defaultLevel(boundary string) string {
	switch boundary {
	case "none":
		return "minimal"
	case "shared-kernel", "wasm-runtime":
		return "light"
	}
	return "standard"
}
