package mcpserver

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog/internal/fault"
)

// Toolsets are the groups of tools from which a client may choose.
const (
	// Core contains the tools for work in a sandbox.
	Core = "core"
	// Admin adds the tool that creates, chooses, lists and ends sandboxes.
	Admin = "admin"
)

// View is the part of a Tenant that one endpoint shows.
type View struct {
	// Bound is the only sandbox that tools may use, by name or ID. With "" tools use the default
	// one, and may name others.
	Bound string
	// Tools are the toolsets; none means Core and Admin.
	Tools []string
	// ReadOnly omits tools that change a sandbox.
	ReadOnly bool
	// Stateless means that there are no sessions in which the chosen sandbox could be stored.
	Stateless bool
}

// Check returns an error if a View is invalid.
func (v View) Check() error {
	for _, t := range v.Tools {
		if t != Core && t != Admin {
			return fault.Newf(fault.Invalid, "unknown_toolset", "unknown toolset %q", oneLine(t)).
				WithHint("toolsets are core and admin")
		}
	}
	return nil
}

func (v View) has(set string) bool { return len(v.Tools) == 0 || slices.Contains(v.Tools, set) }

// key identifies the view.
func (v View) key() string {
	sets := slices.Clone(v.Tools)
	slices.Sort(sets)
	parts := []string{v.Bound, strings.Join(slices.Compact(sets), ","), "", ""}
	if v.ReadOnly {
		parts[2] = "ro"
	}
	if v.Stateless {
		parts[3] = "stateless"
	}
	return strings.Join(parts, "\x00")
}

// view is a View of a Tenant that is being served.
type view struct {
	View
	tenant *Tenant
	srv    *mcp.Server

	mu     sync.Mutex
	chosen map[string]string // by session, the sandbox that was chosen
}

// instructions explain the tools to an agent.
const instructions = `Commands, code and file tools run in a sandbox: a Linux machine of its own, separate from the user's computer. ` +
	`Without the argument sandbox all tools use the same one, which is created at the first call. ` +
	`The working directory is /workspace. Changes there do not change files outside; fetch_changes lists them. ` +
	`The network is limited by a policy: the tool policy shows it, and the result of a call lists the requests that were blocked. ` +
	`Request further hosts with request_access and give the reason; a person decides. ` +
	`A command that takes long continues in the background: follow it with the tool process.`

// Server returns an MCP server that shows a part of the Tenant.
func (d *Tenant) Server(v View) (*mcp.Server, error) {
	if err := v.Check(); err != nil {
		return nil, err
	}
	w := &view{View: v, tenant: d, chosen: map[string]string{}}
	w.srv = d.o.Extend.server(&mcp.Implementation{Name: "crannog", Title: "Crannog sandboxes", Version: d.o.Version}, &mcp.ServerOptions{
		Instructions: instructions, SchemaCache: schemas(),
		// The library would log session IDs, which are credentials, and mistakes of clients.
		// Clients get no log messages either, because the messages are meant for the operator and
		// are in the server's log.
		Capabilities: &mcp.ServerCapabilities{},
		// Content of a sandbox belongs to its owner, so caches between server and client must not
		// store it.
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
	})
	if v.has(Core) {
		w.addCore()
	}
	if v.has(Admin) {
		w.addAdmin()
	}
	return w.srv, nil
}

// schemas are shared by all servers, because creating them takes longer than a call.
var schemas = sync.OnceValue(mcp.NewSchemaCache)

// resolve returns the sandbox for a call: the endpoint's, the one that the call names, the
// session's, or the default one.
func (w *view) resolve(ctx context.Context, s *mcp.ServerSession, ref string) (*agentSandbox, error) {
	if w.Bound == "" {
		if ref == "" {
			ref = w.choice(s)
		}
		return w.tenant.open(ctx, ref)
	}
	sb, err := w.tenant.live(ctx, w.Bound)
	if err != nil {
		return nil, notFound(err, w.Bound)
	}
	if info := sb.Info(); ref != "" && ref != info.ID && ref != info.Name {
		return nil, fault.Newf(fault.Denied, "sandbox_bound", "these tools can use sandbox %s only", label(info)).
			WithHint("omit the argument sandbox")
	}
	return w.tenant.use(ctx, sb)
}

// choose stores a session's sandbox.
func (w *view) choose(s *mcp.ServerSession, id string) error {
	if w.Stateless {
		return fault.New(fault.Unsupported, "no_session", "this version of the protocol has no sessions, so a choice cannot be stored").
			WithHint("name the sandbox in each call, or connect to /mcp/s/NAME")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	live := map[string]bool{}
	for other := range w.srv.Sessions() {
		live[other.ID()] = true
	}
	for id := range w.chosen {
		if !live[id] {
			delete(w.chosen, id)
		}
	}
	w.chosen[s.ID()] = id
	return nil
}

func (w *view) choice(s *mcp.ServerSession) string {
	if w.Stateless || s == nil {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.chosen[s.ID()]
}
