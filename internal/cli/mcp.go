package cli

import (
	"context"
	"errors"
	"io"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/mcpserver"
	"github.com/crannog/crannog/internal/sandbox"
)

// mcpVerbs are the commands about the MCP server and its registration with clients.
type mcpVerbs struct{ *app }

// mcpFlags are the flags of crannog mcp.
type mcpFlags struct {
	sandboxFlags
	sandbox  string
	tools    []string
	readOnly bool
	approver string
}

func (a mcpVerbs) mcpCommand() *cobra.Command {
	var f mcpFlags
	cmd := &cobra.Command{
		Use: "mcp [flags]", Short: "Run the MCP server over standard input and output", Args: cobra.NoArgs,
		Long: "Run an MCP server over standard input and output, for agents that start their tools\n" +
			"as programs. Commands, code and file tools run in a sandbox. It is created at the\n" +
			"first call and removed when the agent ends this program, unless --name keeps it.\n\n" +
			"The flags define the sandbox, as for run; the agent cannot change them. Without a\n" +
			"network flag, each host that the policy does not list needs an approval: crannog\n" +
			"approvals shows the requests that wait.",
		Example: "  claude mcp add crannog -- crannog mcp --allow pypi.org\n  crannog mcp --workspace . --level strict\n  crannog mcp --sandbox dev --read-only",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.mcp(cmd.Context(), &f) },
	}
	f.sandboxFlags.add(cmd.Flags())
	f.offer(cmd)
	a.offerStart(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.sandbox, "sandbox", "", "use this `sandbox`, by name or ID, and no other")
	flags.StringSliceVar(&f.tools, "tools", nil, "`sets` of tools to offer: core, admin (default both)")
	flags.BoolVar(&f.readOnly, "read-only", false, "offer only tools that change nothing")
	flags.StringVar(&f.approver, "approver", string(mcpserver.Person), "who decides the agent's requests: person (outside the agent's client), or `any`, which adds the person at the agent's client")
	cmd.AddCommand(a.mcpInstallCommand(), a.mcpUninstallCommand(), a.mcpSkillCommand())
	offerValues(cmd, "tools", []cobra.Completion{mcpserver.Core, mcpserver.Admin})
	offerValues(cmd, "approver", []cobra.Completion{string(mcpserver.Person), string(mcpserver.Any)})
	return cmd
}

// view is the part of the server that is visible to the agent.
func (f *mcpFlags) view() (mcpserver.View, error) {
	v := mcpserver.View{Bound: f.sandbox, Tools: f.tools, ReadOnly: f.readOnly}
	if err := v.Check(); err != nil {
		return v, usagef("--tools: %s", err.Error()).hint("toolsets are core and admin")
	}
	if f.approver != string(mcpserver.Person) && f.approver != string(mcpserver.Any) {
		return v, usagef("--approver: %q is not person or any", f.approver)
	}
	if f.sandbox != "" && (f.name != "" || f.template != "" || f.from != "" || f.workspace != "" || f.policy != "" || f.level != "" || f.net != "" || len(f.allow) > 0) {
		return v, usagef("--sandbox excludes flags that define a new sandbox")
	}
	return v, f.checkStart()
}

func (a mcpVerbs) mcp(ctx context.Context, f *mcpFlags) error {
	v, err := f.view()
	if err != nil {
		return err
	}
	// Standard output belongs to the protocol. Other output would break it.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return a.with(ctx, func(c *connection) error {
		if v.Bound == lastAlias {
			sb, err := c.find(ctx, v.Bound)
			if err != nil {
				return err
			}
			v.Bound = sb.ID()
		}
		tenant, err := a.tenant(ctx, c, f)
		if err != nil {
			return err
		}
		srv, err := tenant.Server(v)
		if err == nil {
			err = srv.Run(ctx, &mcp.IOTransport{Reader: a.Stdin, Writer: notClosed{a.Stdout}})
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
			err = nil // the agent has closed our input
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if err = errors.Join(err, tenant.Close(end)); err != nil {
			return fail("serve tools", err)
		}
		return nil
	})
}

// tenant returns the sandbox access of the MCP tools.
func (a mcpVerbs) tenant(ctx context.Context, c *connection, f *mcpFlags) (*mcpserver.Tenant, error) {
	o := mcpserver.Options{
		Client: c.Client, Log: a.logger(), Version: a.version, Name: f.name, Approver: mcpserver.Approver(f.approver),
		// A key gives access to its own sandboxes only. The machine's user may access all
		// sandboxes, but an agent only the one that it was given.
		All: !c.local || slices.Contains(f.tools, mcpserver.Admin),
	}
	if f.sandbox != "" {
		return mcpserver.NewTenant(o)
	}
	opts, _, err := runVerbs(a).sandboxOptions(ctx, &f.sandboxFlags, c)
	if err != nil {
		return nil, err
	}
	access, err := f.access()
	if err != nil {
		return nil, err
	}
	if access.Net == "" && access.Policy == "" && len(access.Allow) == 0 {
		// With a network, approval requests of the agent can be granted while it works.
		opts = append(opts, crannog.Net(string(sandbox.NetPolicy)))
	}
	ttl, err := lifetime(f.ttl)
	if err != nil {
		return nil, err
	}
	keepOptions := []crannog.CreateOption{crannog.Timeout(time.Hour), notEphemeral}
	switch {
	case ttl > 0:
		o.Fixed = true
		keepOptions = []crannog.CreateOption{crannog.Timeout(ttl), notEphemeral}
	case c.local:
		// Unlike other sandboxes, it has no limited lifetime.
		keepOptions = []crannog.CreateOption{crannog.Timeout(0), crannog.Forever(), notEphemeral}
	}
	if f.name != "" {
		o.Keep = keepOptions
	}
	if ttl > 0 && f.name == "" {
		opts = append(opts, crannog.Timeout(ttl))
	} else {
		// A sandbox of this process ends soon after the process, even if the process is killed.
		opts = append(opts, crannog.Timeout(leaseTime))
		o.Hold = func(sb *crannog.Sandbox) func() { return runVerbs(a).keepAlive(context.WithoutCancel(ctx), sb) }
	}
	if c.local {
		opts = append(opts, crannog.Ephemeral())
	}
	// Each of these sandboxes gets a new name, because Name is for the default one.
	o.Create = append(opts, crannog.Name(""))
	return mcpserver.NewTenant(o)
}

// notEphemeral makes a sandbox outlive this process.
func notEphemeral(r *api.CreateSandbox) { r.Ephemeral = false }

// notClosed is standard output, which must stay open.
type notClosed struct{ io.Writer }

func (notClosed) Close() error { return nil }
