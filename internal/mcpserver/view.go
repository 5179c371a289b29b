package mcpserver

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog/internal/fault"
)

// Toolsets are the groups of tools that a client may choose from.
const (
	// Core are the tools to work in a sandbox.
	Core = "core"
	// Admin adds what is done to sandboxes as a whole: making, choosing,
	// listing and ending them.
	Admin = "admin"
)

// View is what one endpoint shows of a Desk.
type View struct {
	// Bound is the only sandbox that tools reach, by name or ID; "" is the
	// default one, and others by their name.
	Bound string
	// Tools are the toolsets; none is Core and Admin.
	Tools []string
	// ReadOnly leaves out what changes a sandbox.
	ReadOnly bool
	// Stateless says that there are no sessions that could remember which
	// sandbox was chosen.
	Stateless bool
}

// Check returns what is wrong with a View.
func (v View) Check() error {
	for _, t := range v.Tools {
		if t != Core && t != Admin {
			return fault.Newf(fault.Invalid, "unknown_toolset", "there is no toolset %q", oneLine(t)).
				WithHint("toolsets are core and admin")
		}
	}
	return nil
}

func (v View) has(set string) bool { return len(v.Tools) == 0 || slices.Contains(v.Tools, set) }

// key tells views apart.
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

// view is a View of a desk that is served.
type view struct {
	View
	desk *Desk
	srv  *mcp.Server

	mu     sync.Mutex
	chosen map[string]string // by session, the sandbox that was chosen
}

// instructions tell an agent what this is.
const instructions = `Commands, code and file tools run in a sandbox: a Linux machine of its own, apart from the user's computer. ` +
	`Without a sandbox argument all tools use the same one, which is made at the first call. ` +
	`The working directory is /workspace. What happens there changes nothing outside; fetch_changes shows what changed. ` +
	`The network is limited by a policy: the tool policy shows it, and what was blocked is said in the result of the call that tried it. ` +
	`Ask for more with request_access and say why; a person decides. ` +
	`A command that takes long is moved to the background and not killed: follow it with process.`

// Server returns an MCP server that shows a part of the desk.
func (d *Desk) Server(v View) (*mcp.Server, error) {
	if err := v.Check(); err != nil {
		return nil, err
	}
	w := &view{View: v, desk: d, chosen: map[string]string{}}
	w.srv = d.o.Extend.server(&mcp.Implementation{Name: "crannog", Title: "Crannog sandboxes", Version: d.o.Version}, &mcp.ServerOptions{
		Instructions: instructions, SchemaCache: schemas(),
		// The library would log session IDs, which open sessions, and what clients
		// do wrong. No log messages to clients either: what an operator should know is in the server's log.
		Capabilities: &mcp.ServerCapabilities{},
		// What is in a sandbox is its owner's: nothing between may keep it.
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

// schemas are shared by all servers: making them takes longer than a call.
var schemas = sync.OnceValue(mcp.NewSchemaCache)

// box finds the sandbox that a call is for: the endpoint's, the one that it
// names, the session's, or the default one.
func (w *view) box(ctx context.Context, s *mcp.ServerSession, ref string) (*box, error) {
	if w.Bound == "" {
		if ref == "" {
			ref = w.choice(s)
		}
		return w.desk.open(ctx, ref)
	}
	sb, err := w.desk.live(ctx, w.Bound)
	if err != nil {
		return nil, notFound(err, w.Bound)
	}
	if info := sb.Info(); ref != "" && ref != info.ID && ref != info.Name {
		return nil, fault.Newf(fault.Denied, "sandbox_bound", "these tools are for sandbox %s alone", label(info)).
			WithHint("leave the argument sandbox out")
	}
	return w.desk.use(ctx, sb)
}

// choose remembers a session's sandbox.
func (w *view) choose(s *mcp.ServerSession, id string) error {
	if w.Stateless {
		return fault.New(fault.Unsupported, "no_session", "this protocol version has no session that could remember a choice").
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
