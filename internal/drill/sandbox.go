package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/sandbox"
)

func seconds(s Settings) float64 {
	if s.Seconds > 0 {
		return s.Seconds
	}
	return attackSeconds
}

// inSandbox makes the attack in a new sandbox, and returns what stopped it: rules of the policy,
// limits, the export, or the end of the sandbox. A sandbox with the defence first proves that the
// attack's tools work in it.
func (a *attempt) inSandbox(ctx context.Context, e api.Engine, s Settings, level string, defended bool) (stopped []string, err error) {
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
		if killErr := sb.Kill(context.WithoutCancel(ctx)); !gone(killErr) {
			err = errors.Join(err, killErr)
		}
	}()
	if defended && a.Works != "" {
		if err := prove(ctx, sb, a.Works); err != nil {
			return nil, err
		}
	}
	result, err := sb.Exec(ctx, command(a.expand(a.Attack), seconds(s)))
	a.output = result.Stdout
	if err != nil {
		return a.ended(ctx, sb, err)
	}
	if result.Hit != api.HitNone {
		stopped = append(stopped, "limit:"+result.Hit)
	}
	if a.Apply {
		_, err := sb.Apply(ctx, api.Apply{Protected: !defended && a.Control.Protected})
		switch {
		case errors.Is(err, crannog.ErrDenied):
			stopped = append(stopped, "export: "+err.Error())
		case err != nil:
			return nil, fmt.Errorf("apply the changes: %w", err) // it is not the defence that failed it
		}
	}
	if sb.Info().Network.Attached {
		err = sb.Flows(ctx, crannog.FlowOptions{Denied: true}, func(f api.FlowRecord) error {
			if !f.Probe && !slices.Contains(stopped, f.Rule) {
				stopped = append(stopped, f.Rule)
			}
			return nil
		})
		if gone(err) {
			err = nil // a limit has ended the sandbox, which stopped names already
		}
	}
	return stopped, err
}

func command(script string, seconds float64) api.Exec {
	return api.Exec{Cmd: []string{"sh", "-c", script}, Cwd: "/workspace", TimeoutSeconds: seconds}
}

// prove shows that the tools of an attack work in its sandbox. Otherwise an attack would fail, and
// its defence seem to hold, because a program is missing there.
func prove(ctx context.Context, sb *crannog.Sandbox, script string) error {
	result, err := sb.Exec(ctx, command(script, attackSeconds))
	if err != nil {
		return fmt.Errorf("prove that its tools work in the sandbox: %w", err)
	}
	if result.ExitCode != 0 {
		return fmt.Errorf("its tools do not work in the sandbox: the script of works exited with %d: %.200q", result.ExitCode, result.Stderr)
	}
	return nil
}

// ended returns what an attack whose command returned an error has shown. An attack may end its own
// sandbox. This takes its output, so it shows nothing if the goal is an output, or an export that
// was not made.
func (a *attempt) ended(ctx context.Context, sb *crannog.Sandbox, cause error) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, arrival)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := sb.Refresh(ctx)
		switch {
		case gone(err) || err == nil && info.State == string(sandbox.Stopped):
			if a.Goal == Output || a.Apply {
				return nil, fmt.Errorf("the attack ended its sandbox, and with it what the drill looks at: %w", cause)
			}
			return []string{"the sandbox ended"}, nil
		case err != nil:
			return nil, errors.Join(cause, err)
		case info.State == string(sandbox.Running) && crannog.Code(cause) != client.CodeLost:
			return nil, cause
		}
		// A broken stream is seen before the end of the sandbox is.
		select {
		case <-ctx.Done():
			return nil, cause
		case <-tick.C:
		}
	}
}

// gone reports whether an error means that the sandbox has ended.
func gone(err error) bool {
	code := crannog.Code(err)
	return code == sandbox.CodeUnknown || code == sandbox.CodeNotRunning
}
