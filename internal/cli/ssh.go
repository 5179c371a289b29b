package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
)

// sshVerbs is the command that opens an SSH endpoint for a sandbox.
type sshVerbs struct{ *app }

func (a sshVerbs) command() *cobra.Command {
	var f sshFlags
	var user string
	cmd := &cobra.Command{
		Use:   "ssh [flags] SANDBOX",
		Short: "Open an SSH endpoint for a sandbox, for ssh, scp, rsync and editors",
		Long: "Listen on 127.0.0.1 for SSH clients and run their commands in SANDBOX until interrupted.\n" +
			"Only clients with one of your public keys can connect. ssh, scp, sftp, rsync and editors\n" +
			"that work over SSH can be used, and local forwarding (ssh -L) reaches ports of the\n" +
			"sandbox. Forwarding to other hosts, remote forwarding, agent forwarding and X11 are\n" +
			"refused. The configuration for ~/.ssh/config is printed, or written with --ssh-config.",
		Example: "  crannog ssh --ssh-config ~/.ssh/crannog-box.conf box\n  ssh -F ~/.ssh/crannog-box.conf crannog-box",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ssh(cmd.Context(), &f, args[0], user)
		},
		ValidArgsFunction: a.completeOne,
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&user, "user", "u", "", "`user` inside (default: the sandbox's user)")
	return cmd
}

func (a sshVerbs) ssh(ctx context.Context, f *sshFlags, ref, user string) error {
	err := a.with(ctx, func(c *connection) error {
		return interruptible(ctx, func(ctx context.Context) error {
			sb, err := c.find(ctx, ref)
			if err != nil {
				return err
			}
			if err := runVerbs(a).ensureRunning(ctx, sb); err != nil {
				return err
			}
			command := func(ctx context.Context, args []string) *crannog.Cmd {
				cmd := sb.CommandContext(ctx, args[0], args[1:]...)
				cmd.User, cmd.Env = user, a.environment(user, sb.Info(), false)
				if sb.Info().Workspace != "" {
					cmd.Dir = "/workspace"
				}
				return cmd
			}
			e := &sshEndpoint{
				app: a.app, flags: f, sandbox: sshSandbox{command}, name: label(sb.Info()), id: sb.ID(), user: first(user, loginName(ctx, command)),
			}
			view, serve, err := e.open()
			if err != nil {
				return err
			}
			if err := e.announce(view, map[string]any{"sandbox": sb.ID(), "ssh": view}); err != nil {
				return err
			}
			return serve(ctx)
		})
	})
	if err != nil {
		return fail("open an SSH endpoint for "+inert(ref), err)
	}
	return nil
}

// announce prints the configuration for SSH clients.
func (e *sshEndpoint) announce(view sshView, object any) error {
	if e.json {
		return e.object(object)
	}
	if view.File == "" {
		if _, err := fmt.Fprint(e.Stdout, view.Config); err != nil {
			return err
		}
		e.note("SSH endpoint at 127.0.0.1:%d; Ctrl-C ends it", view.Port)
		return nil
	}
	e.note("SSH endpoint at 127.0.0.1:%d: ssh -F %s %s; Ctrl-C ends it", view.Port, inert(view.File), view.Alias)
	return nil
}

// loginTime bounds asking for the name of a user.
const loginTime = 10 * time.Second

// loginName returns the name of the user that commands run as, or "" if it is not known.
func loginName(ctx context.Context, command func(context.Context, []string) *crannog.Cmd) string {
	cmd := command(ctx, []string{"id", "-un"})
	var out beginning
	cmd.Stdout, cmd.Timeout = &out, loginTime
	if cmd.Run() != nil {
		return "" // small images have no id
	}
	return strings.TrimSpace(string(out))
}

// beginning keeps the first bytes of output, which a sandbox can make as long as it likes.
type beginning []byte

func (b *beginning) Write(data []byte) (int, error) {
	*b = append(*b, data[:min(len(data), 256-len(*b))]...)
	return len(data), nil
}
