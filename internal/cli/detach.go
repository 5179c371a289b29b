package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
)

// holdVerb is the command of the process that holds a detached command.
const holdVerb = "hold-detached"

// detached is a command that the process of holdVerb runs, on its standard input.
type detached struct {
	Sandbox string        `json:"sandbox"`
	Args    []string      `json:"args"`
	Env     []string      `json:"env"`
	Dir     string        `json:"dir"`
	User    string        `json:"user"`
	Timeout time.Duration `json:"timeout"`
}

// startedLine is how it says that the command runs. Anything else is an error.
const startedLine = "started\n"

// holdDetached starts a command in a process that stays until the command ends, and
// returns when it runs. Without a server no other process hears what the command
// prints or how it ends.
func (a *app) holdDetached(cmd *crannog.Cmd, sandbox string) error {
	input, err := json.Marshal(detached{sandbox, cmd.Args, cmd.Env, cmd.Dir, cmd.User, cmd.Timeout})
	if err != nil {
		return err
	}
	// Input by a pipe: arguments are shown to all users, and these may be secret.
	holder := exec.Command("/proc/self/exe", "--state", a.config.State, holdVerb) //nolint:noctx // it outlives this process
	if a.configFile != "" {
		holder.Args = append(holder.Args, "--config", a.configFile)
	}
	holder.Args[0] = os.Args[0]
	holder.Env = a.Vars
	holder.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := holder.StdinPipe()
	if err != nil {
		return err
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		return err
	}
	if err := holder.Start(); err != nil {
		return fmt.Errorf("start the process that keeps its output: %w", err)
	}
	// A holder that cannot read says why, or ends.
	_, _ = in.Write(input)
	_ = in.Close()
	said, err := io.ReadAll(io.LimitReader(out, maxRefusal))
	if string(said) == startedLine {
		return holder.Process.Release()
	}
	err = errors.Join(err, holder.Wait())
	var refusal crannog.Error
	if json.Unmarshal(said, &refusal) == nil && refusal.Message != "" {
		return &refusal
	}
	return fmt.Errorf("the process that keeps its output ended: %w", err)
}

const maxRefusal = 64 << 10

// holdCommand is not for people: it is what holdDetached starts.
func (a *app) holdCommand() *cobra.Command {
	return &cobra.Command{
		Use: holdVerb, Hidden: true, Args: cobra.NoArgs, Annotations: map[string]string{"code": "own"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			var d detached
			if err := json.NewDecoder(a.Stdin).Decode(&d); err != nil || len(d.Args) == 0 {
				return usagef("%s is started by crannog run --detach", holdVerb)
			}
			err := a.with(cmd.Context(), func(c *connection) error { return a.holdOne(cmd.Context(), c, d) })
			if err != nil {
				refusal := refusalOf(err)
				return json.NewEncoder(a.Stdout).Encode(refusal)
			}
			return nil
		},
	}
}

func refusalOf(err error) crannog.Error {
	if e, ok := errors.AsType[*crannog.Error](err); ok {
		return *e
	}
	v := viewOf(err)
	return crannog.Error{Kind: v.Kind, Code: v.Code, Message: v.Cause, Hint: v.Hint}
}

// holdOne runs the command and waits for its end.
func (a *app) holdOne(ctx context.Context, c *connection, d detached) error {
	sb, err := c.Get(ctx, d.Sandbox)
	if err != nil {
		return err
	}
	cmd := sb.CommandContext(ctx, d.Args[0], d.Args[1:]...)
	cmd.Env, cmd.Dir, cmd.User, cmd.Timeout = d.Env, d.Dir, d.User, d.Timeout
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := io.WriteString(a.Stdout, startedLine); err != nil {
		return err
	}
	// From here on nobody listens: whoever started us goes on when this ends.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 3 {
		if err := syscall.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	// How it ended is on record.
	_ = cmd.Wait()
	return nil
}
