package cli

import (
	"context"
	"os"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/crannog/crannog"
)

func (a runVerbs) execCommand() *cobra.Command {
	var f commandFlags
	var env, files []string
	cmd := &cobra.Command{
		Use:   "exec [flags] SANDBOX [--] COMMAND [ARG...]",
		Short: "Run a command in an existing sandbox",
		Long: "Run a command in an existing sandbox, as its user. The exit code is the command's.\n\n" +
			"The command's output ends when no process has it open any more: a server that the\n" +
			"command starts in the background keeps exec waiting, unless the server's output is\n" +
			"redirected (>/dev/null 2>&1) or --detach-children is given. With that flag exec ends\n" +
			"with the command, the server continues, and its later output is discarded. crannog ps\n" +
			"lists it.",
		Example:     "  crannog exec box -- npm test\n  crannog exec --detach-children box -- sh -c 'npm run dev & sleep 1'",
		Annotations: map[string]string{"code": "own"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 && args[1] == "--" {
				args = append(args[:1:1], args[2:]...)
			}
			if len(args) < 2 {
				return usagef("exec needs a sandbox and a command")
			}
			pairs, err := a.assignments(env, files)
			if err != nil {
				return err
			}
			return a.exec(cmd.Context(), &f, args[0], pairs, args[1:])
		},
		ValidArgsFunction: a.completeOne,
	}
	f.add(cmd)
	cmd.Flags().StringArrayVarP(&env, "env", "e", nil, "set `NAME=VALUE`; NAME alone copies the value from here, if it is set")
	cmd.Flags().StringArrayVar(&files, "env-file", nil, "read NAME=VALUE lines from a `file`; later lines win, and -e wins over the file")
	return cmd
}

func (a runVerbs) exec(ctx context.Context, f *commandFlags, ref string, env, args []string) error {
	signals, release := notifySignals()
	defer release()
	var code int
	err := a.with(ctx, func(c *connection) error {
		sb, err := c.find(ctx, ref)
		if err != nil {
			return err
		}
		if err := a.ensureRunning(ctx, sb); err != nil {
			return err
		}
		tty := !f.noTTY && !a.json && a.interactive() && hasTerminals(sb.Info())
		cmd := sb.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append(a.environment(f.user, sb.Info(), tty), env...)
		if err := f.apply(cmd); err != nil {
			return err
		}
		if cmd.Dir == "" && sb.Info().Workspace != "" {
			cmd.Dir = "/workspace"
		}
		if a.json {
			code, err = a.collect(ctx, c, sb, cmd, f.maxOutput, signals, nil)
			return err
		}
		a.streams(cmd, tty)
		denialReport := a.reportBlocked(ctx, sb, true)
		defer func() { denialReport.end(ctx, code != 0) }()
		code, err = a.attached(ctx, sb, cmd, signals)
		return err
	})
	if err != nil {
		return fail("run "+args[0], err)
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// attached runs a command in a sandbox that is not removed afterwards.
func (a runVerbs) attached(ctx context.Context, sb *crannog.Sandbox, cmd *crannog.Cmd, signals <-chan os.Signal) (int, error) {
	r := &relay{app: a.app, cmd: cmd, signals: signals, kill: func() {
		// The command may have just ended; Wait returns its result.
		_ = cmd.Signal(syscall.SIGKILL)
	}}
	code, err := r.run(ctx)
	if err != nil {
		return a.explainEnd(ctx, sb, err)
	}
	return code, nil
}

func (a runVerbs) shellCommand() *cobra.Command {
	var f runFlags
	var newSandboxFlags []string
	cmd := &cobra.Command{
		Use:         "shell [flags] [SANDBOX]",
		Short:       "Open a shell in a sandbox, or in a new one",
		Annotations: map[string]string{"code": "own"},
		Args:        cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			shell := []string{"bash", "-l"}
			if len(args) == 1 {
				if err := noneOf(cmd.Flags(), newSandboxFlags, args[0]); err != nil {
					return err
				}
				pairs, err := a.assignments(f.env, f.envFiles)
				if err != nil {
					return err
				}
				return a.exec(cmd.Context(), &f.commandFlags, args[0], pairs, shell)
			}
			f.rm = true
			if f.bare = f.image != ""; f.bare {
				// Small images have no bash.
				shell = []string{"sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash -l; fi; exec sh -l"}
			}
			return a.run(cmd.Context(), &f, shell)
		},
		ValidArgsFunction: a.completeOne,
	}
	f.sandboxFlags.add(cmd.Flags())
	f.addTools(cmd)
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "env" && flag.Name != "env-file" {
			newSandboxFlags = append(newSandboxFlags, flag.Name)
		}
	})
	f.offer(cmd)
	a.offerStart(cmd)
	f.commandFlags.add(cmd)
	cmd.Flags().SetInterspersed(true)
	return cmd
}

// noneOf refuses flags about a new sandbox if the sandbox exists. For example, a user of --net none
// must not believe that the shell has no network.
func noneOf(f *pflag.FlagSet, newSandboxFlags []string, ref string) error {
	for _, name := range newSandboxFlags {
		if f.Changed(name) {
			return usagef("--%s is for a new sandbox, but %s already exists", name, inert(ref)).
				hint("omit SANDBOX to create a new one; crannog policy set changes the policy of a running one")
		}
	}
	return nil
}
