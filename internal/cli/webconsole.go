package cli

import (
	"context"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/fault"
	web "github.com/crannog/crannog/internal/frontend/console"
	"github.com/crannog/crannog/internal/frontend/console/session"
)

// consoleVerbs are the commands about the web console.
type consoleVerbs struct{ *app }

// linkFlags are the flags of crannog console.
type linkFlags struct {
	scope, name, life string
	noOpen            bool // print the link, and open no browser
}

func (a consoleVerbs) webConsoleCommand() *cobra.Command {
	var f linkFlags
	cmd := &cobra.Command{
		Use: "console", Short: "Sign in to the server's web console", Args: cobra.NoArgs,
		Long: "Create a link that signs a browser in to the web console of the local server. It is\n" +
			"valid once, for ten minutes. A viewer sees everything except secrets, keys and the\n" +
			"contents of files. An operator also works with sandboxes and decides approval\n" +
			"requests. An admin also manages keys, secrets, settings and sessions. On a desktop\n" +
			"the browser is opened.",
		Example: "  crannog console\n  crannog console --scope viewer --name Ann --for 1h --no-open\n  crannog console ls\n  crannog console revoke c0123456789abcd",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.signIn(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.scope, "scope", "admin", "what the session may do: viewer, operator or admin")
	flags.StringVar(&f.life, "for", "12h", "`time` after which the session ends")
	flags.StringVar(&f.name, "name", "", "`name` of the person, for the list and the audit log")
	flags.BoolVar(&f.noOpen, "no-open", false, "open no browser, only print the link")
	offerValues(cmd, "scope", []cobra.Completion{"viewer", "operator", "admin"})
	cmd.AddCommand(a.consoleListCommand(), a.consoleRevokeCommand())
	return cmd
}

// checkServer returns an error if no server runs: an engine in this process has no console.
func (a consoleVerbs) checkServer(ctx context.Context) error {
	if a.config.Client.URL != "" || answers(ctx, a.config.Socket()) {
		return nil
	}
	return fail("reach the console", fault.Newf(fault.Unavailable, "server_unreachable", "no server runs on the state directory %s", a.config.State)).hint("crannog serve starts one")
}

// signIn prints a link to the web console, and opens it in a browser on a desktop.
func (a consoleVerbs) signIn(ctx context.Context, f *linkFlags) error {
	life, err := config.ParseDuration(f.life)
	if err != nil {
		return usagef("--for: %s", err.Error())
	}
	if _, err := session.ParseScope(f.scope); err != nil {
		return usagef("--scope: %s", fault.PublicText(err))
	}
	if err := a.checkServer(ctx); err != nil {
		return err
	}
	return a.with(ctx, func(c *connection) error {
		link, err := c.ConsoleLink(ctx, f.name, f.scope, life)
		if err != nil {
			return fail("create a link", err)
		}
		if a.json {
			return a.object(link)
		}
		if _, err := fmt.Fprintln(a.Stdout, link.URL); err != nil {
			return err
		}
		if !web.Built() {
			a.note(web.NotBuilt)
		}
		if f.noOpen || !isTerminal(a.Stdout) || first(a.variable("WAYLAND_DISPLAY"), a.variable("DISPLAY")) == "" {
			return nil
		}
		return a.openBrowser(ctx, link.URL)
	})
}

// openBrowser opens a link through a file that only this user can read. If it were an argument,
// every user who lists this machine's processes would see the token.
func (a consoleVerbs) openBrowser(ctx context.Context, url string) error {
	program, err := exec.LookPath("xdg-open")
	if err != nil {
		return nil // the link was printed
	}
	const name = "console-link.html"
	root, err := os.OpenRoot(a.config.State)
	if err != nil {
		return fail("open the browser", err)
	}
	defer root.Close()
	page := `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url=` + html.EscapeString(url) + `">`
	if err := root.Remove(name); err != nil && !os.IsNotExist(err) {
		return fail("open the browser", err)
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fail("open the browser", err)
	}
	_, err = f.WriteString(page)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fail("open the browser", err)
	}
	if out, err := exec.CommandContext(ctx, program, filepath.Join(a.config.State, name)).CombinedOutput(); err != nil {
		a.note("the browser was not opened: " + oneLine(strings.TrimSpace(string(out))+" "+err.Error()))
	}
	return nil
}

func (a consoleVerbs) consoleListCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List console sessions", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkServer(cmd.Context()); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(c *connection) error {
				sessions, err := c.ConsoleSessions(cmd.Context())
				if err != nil {
					return fail("list sessions", err)
				}
				now := time.Now()
				return list(&a.terminal, &f, sessions, func(s api.ConsoleSession) string { return s.ID }, []string{"ID", "NAME", "SCOPE", "SINCE", "UNTIL"}, func(s api.ConsoleSession) []string {
					return []string{s.ID, s.Name, s.Scope, ago(s.CreatedAt, now), s.ExpiresAt.Local().Format("2006-01-02 15:04")}
				})
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (a consoleVerbs) consoleRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "revoke SESSION...", Aliases: []string{"rm"}, Short: "End console sessions", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkServer(cmd.Context()); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(c *connection) error {
				for _, id := range args {
					if err := c.EndConsoleSession(cmd.Context(), id); err != nil {
						return fail("sign out "+id, err)
					}
					if !a.quiet {
						fmt.Fprintln(a.Stdout, id)
					}
				}
				return nil
			})
		},
	}
}
