package drill

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
	r.Stopped, err = defended.inSandbox(ctx, e, s.Sandbox, defaultLevel(e.Boundary), false)
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
		_, err = control.inSandbox(ctx, e, s.Control.Settings, "minimal", s.Control.Protected)
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

// attempt is one run of an attack.
type attempt struct {
	*drill
	Scenario
	token, dir, workspace, host string
	output                      string
}

// attempt prepares the files of an attack, with a token of its own.
func (d *drill) attempt(_ context.Context, s Scenario) (*attempt, error) {
	dir, err := os.MkdirTemp(d.files, "attempt-")
	if err != nil {
		return nil, err
	}
	a := &attempt{drill: d, Scenario: s, dir: dir, token: "drill" + strings.ToLower(rand.Text()), workspace: filepath.Join(dir, "workspace"), host: filepath.Join(dir, "host")}
	//nolint:gosec // every user may read the host's secret: only the sandbox protects it
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(a.workspace, 0o755), os.Mkdir(a.host, 0o755),
		os.WriteFile(filepath.Join(a.host, "secret"), []byte(a.token+"\n"), 0o644))
	for name, text := range s.Files {
		file := filepath.Join(a.workspace, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(a.expand(text)), 0o755)) //nolint:gosec // as above
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return a, nil
}

func (a *attempt) remove() { _ = os.RemoveAll(a.dir) }

func (a *attempt) expand(text string) string {
	return strings.NewReplacer("{{token}}", a.token, "{{host}}", a.host, "{{state}}", filepath.Join(filepath.Dir(a.files), "state")).Replace(text)
}

func seconds(s Settings) float64 {
	if s.Seconds > 0 {
		return s.Seconds
	}
	return attackSeconds
}

// inSandbox makes the attack in a new sandbox, and returns the rules that denied its requests.
func (a *attempt) inSandbox(ctx context.Context, e api.Engine, s Settings, level string, protected bool) (stopped []string, err error) {
	if s.Level != "" {
		level = s.Level
	}
	options := []crannog.CreateOption{
		crannog.Engine(e.Name), crannog.Level(level), crannog.Timeout(lifetime), crannog.Ephemeral(),
		crannog.Workspace(a.workspace), crannog.Limits(s.Limits.api()),
	}
	if s.Net != "" {
		options = append(options, crannog.Net(s.Net))
	}
	if s.Policy != "" {
		options = append(options, crannog.Policy(s.Policy))
	}
	sb, err := a.client.Create(ctx, options...)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, ignoreEnded(sb.Kill(context.WithoutCancel(ctx))))
	}()
	result, err := sb.Exec(ctx, api.Exec{Cmd: []string{"sh", "-c", a.expand(a.Attack)}, Cwd: "/workspace", TimeoutSeconds: seconds(s)})
	a.output = result.Stdout
	if err != nil {
		// An attack may end its own sandbox, which is not an error of the drill.
		if _, again := a.client.Engines(ctx); again != nil || !ended(err) {
			return nil, err
		}
		return []string{"the sandbox ended"}, nil
	}
	if result.Hit != api.HitNone {
		stopped = append(stopped, "limit:"+result.Hit)
	}
	if a.Apply {
		if _, err := sb.Apply(ctx, api.Apply{Protected: protected}); err != nil {
			stopped = append(stopped, "export: "+err.Error())
		}
	}
	if sb.Info().Network.Attached {
		err = sb.Flows(ctx, crannog.FlowOptions{Denied: true}, func(f api.FlowRecord) error {
			if !f.Probe && !slices.Contains(stopped, f.Rule) {
				stopped = append(stopped, f.Rule)
			}
			return nil
		})
	}
	return stopped, err
}

// ended reports whether an error means that the sandbox has ended.
func ended(err error) bool {
	return slices.Contains([]string{"sandbox_not_running", "sandbox_ended", "sandbox_stopped", "guest_lost", "sandbox_lost", "oom"}, crannog.Code(err))
}

func ignoreEnded(err error) error {
	if ended(err) {
		return nil
	}
	return err
}

// onHost makes the attack without a sandbox, inside the drill's namespaces.
func (a *attempt) onHost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds(a.Control.Settings)*float64(time.Second)))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", a.expand(a.Attack)) //nolint:gosec // a scenario is a script
	cmd.Dir = a.workspace
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + a.dir}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	a.output = string(out)
	if _, exit := errors.AsType[*exec.ExitError](err); exit {
		return nil // the goal decides
	}
	return err
}

// await waits until a control has reached its goal.
func (a *attempt) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, arrival)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := a.succeeded()
		if ok || err != nil {
			return err
		}
		if a.Goal != Received {
			return errors.New("the attack did not reach its goal without the defence either, so it proves nothing")
		}
		select {
		case <-ctx.Done():
			return errors.New("no server received the token without the defence either, so it proves nothing")
		case <-tick.C:
		}
	}
}

// succeeded reports whether the attack reached its goal.
func (a *attempt) succeeded() (bool, error) {
	switch a.Goal {
	case Received:
		return a.net.got(a.token), nil
	case Changed:
		return containsToken(a.workspace, a.token)
	default:
		return strings.Contains(a.output, a.token), nil
	}
}
