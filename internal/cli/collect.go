package cli

import (
	"bytes"
	"context"
	"os"
	"syscall"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/guest/client"
)

// runResult is the output of --json.
type runResult struct {
	ID string `json:"id"`
	api.ExecResult
	// Changes are the changes of the command below the workspace, if any.
	Changes *changeSummary `json:"changes,omitempty"`
}

// collect runs a command and prints one object with the result.
func (a runVerbs) collect(ctx context.Context, c *connection, sb *crannog.Sandbox, cmd *crannog.Cmd, maxOutput string, signals <-chan os.Signal, keepChanges func(context.Context) *changeSummary) (int, error) {
	limit := a.config.Sandbox.OutputBytes
	if maxOutput != "" {
		n, err := config.ParseSize(maxOutput)
		if err != nil || n == 0 {
			return 0, usagef("--max-output: %q is not a size such as 1m", maxOutput)
		}
		limit = n
	}
	out := client.NewCollector(limit)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.Stdin, out.Stdout(), out.Stderr()
	if a.Stdin == nil || isTerminal(a.Stdin) {
		cmd.Stdin = bytes.NewReader(nil)
	}
	denials := a.watchBlocked(ctx, sb)
	started := time.Now()
	r := &relay{app: a.app, cmd: cmd, signals: signals, kill: func() { _ = cmd.Signal(syscall.SIGKILL) }}
	code, timedOut, err := r.outcome(ctx)
	hit := ""
	if err != nil {
		if code, err = a.explainEnd(ctx, sb, err); err != nil {
			return 0, err
		}
		switch sb.Info().Reason {
		case "oom":
			hit = api.HitOOM
		case "timeout":
			hit = api.HitTimeout // expiry of the sandbox, from --ttl
		}
	}
	result := runResult{ID: sb.ID(), ExecResult: out.Result(client.Exit{Code: code, TimedOut: timedOut})}
	result.Hit = first(hit, result.Hit)
	result.DurationMS = time.Since(started).Milliseconds()
	result.Denied = denials.all(ctx, code != 0)
	if keepChanges != nil {
		result.Changes = keepChanges(ctx)
	}
	// The audit log contains the exit by now. Without an audit log, the result has no tree head.
	if sum, err := c.Checkpoint(ctx); err == nil {
		result.Checkpoint = &sum
	}
	return code, a.object(result)
}
