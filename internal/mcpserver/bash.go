package mcpserver

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/guest/client"
)

type bashIn struct {
	target
	Command    string  `json:"command" jsonschema:"What to run, as in bash. Directory, variables and functions stay for the next call."`
	Timeout    float64 `json:"timeout_seconds,omitempty" jsonschema:"How long to wait. A command that takes longer is moved to the background, not killed."`
	Background bool    `json:"background,omitempty" jsonschema:"Return at once and leave it running; follow it with process. Its directory and variables are not kept."`
	Cwd        string  `json:"cwd,omitempty" jsonschema:"Go to this directory first, and stay there."`
	Stdin      string  `json:"stdin,omitempty" jsonschema:"Standard input. Without it the input is empty, except in the background, where process can send some."`
}

// commandResult is the result of a command.
type commandResult struct {
	ExitCode   *int   `json:"exit_code,omitempty" jsonschema:"The command's own, 128+N after signal N; absent while it runs."`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	Truncated  bool   `json:"truncated" jsonschema:"Output is left out here; log_uri has all of it that is kept."`
	LogURI     string `json:"log_uri,omitempty" jsonschema:"Resource with the output."`
	DurationMS int64  `json:"duration_ms"`
	Running    bool   `json:"running" jsonschema:"It, or what it started, runs on in the background."`
	Process    int    `json:"process_id,omitempty" jsonschema:"For process, if it runs on."`
	Sandbox    string `json:"sandbox"`
	// Blocked are requests that the policy denied while the command ran.
	Blocked []string `json:"blocked,omitempty" jsonschema:"Requests that the policy refused while it ran."`
}

// The default time to wait for a command, and the longest.
const (
	defaultWait = 120 * time.Second
	maxWait     = time.Hour
	// silentWait bounds a call whose client gets no progress notifications. Clients commonly give
	// up after 60 s, and would cancel the command with the call.
	silentWait = 50 * time.Second
)

func (w *view) addBash() {
	add(w, tool{
		name: "bash", title: "Run a command", changes: true, destroys: true, reaches: true,
		text: "Run a shell command in the sandbox. Working directory (at first /workspace), variables and functions persist between calls. " +
			"A command that takes longer than timeout_seconds continues in the background with a process_id. An exit code other than 0 is not an error of the tool.",
		shape: func(p map[string]*jsonschema.Schema) {
			inRange(p["timeout_seconds"], 0.1, maxWait.Seconds())
			defaultsTo(p["timeout_seconds"], "120")
		},
	}, w.bash)
}

func (w *view) bash(ctx context.Context, c *call, in bashIn) (commandResult, error) {
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return commandResult{}, err
	}
	since := b.latestDenial(ctx)
	j, err := b.shell(in)
	if err != nil {
		return commandResult{}, err
	}
	wait := c.waitTime(in.Timeout)
	if in.Background {
		wait = 0
	}
	defer c.progress(ctx, j.progress)()
	if err := j.wait(ctx, wait); err != nil {
		return commandResult{}, err
	}
	return c.report(ctx, b, j, since)
}

// shell starts a command. Without bash it uses sh.
func (b *agentSandbox) shell(in bashIn) (*job, error) {
	var err error
	name := rand.Text()
	for _, shell := range []string{"bash", "sh"} {
		var argv []string
		if argv, err = shellCommand(shell, name, in.Command, in.Cwd, !in.Background); err != nil {
			return nil, err
		}
		var j *job
		j, err = b.run(command{what: in.Command, argv: argv, stdin: in.Stdin, keepInput: in.Background, name: name})
		if err == nil || crannog.Code(err) != client.CodeNotFound {
			return j, err
		}
	}
	return nil, err
}

// waitTime returns how long a call waits for the command.
func (c *call) waitTime(seconds float64) time.Duration {
	wait := defaultWait
	if seconds > 0 {
		wait = min(time.Duration(seconds*float64(time.Second)), maxWait)
	}
	if !c.hasProgress() {
		wait = min(wait, silentWait)
	}
	return wait
}
