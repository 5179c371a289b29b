package cli

import (
	"context"
	"log/slog"
	"net"
	"time"

	web "github.com/crannog/crannog/internal/frontend/console"
	"github.com/crannog/crannog/internal/mcpserver"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
)

// frontends returns the handlers of a server beside the API and the E2B API.
func (a serverVerbs) frontends(base, domain string, rules sandbox.Settings, log *slog.Logger) []server.FrontendMount {
	return []server.FrontendMount{
		{Path: "/mcp", Open: a.mcpFrontend(domain, log)},
		{Path: web.Path, Open: a.consoleFrontend(base, domain, rules, log), Home: true},
	}
}

// mcpFrontend returns a function that creates the MCP frontend of a server.
func (a serverVerbs) mcpFrontend(domain string, log *slog.Logger) func(server.Backend) server.Frontend {
	return func(in server.Backend) server.Frontend {
		h, err := mcpserver.NewHTTP(mcpserver.HTTPOptions{
			Authenticate: in.Server.AgentKey,
			Dial: func(ctx context.Context, key string) (net.Conn, error) {
				return in.DialAs(ctx, sandbox.Principal{KeyID: key})
			},
			Refused: in.Server.Service.Refused, Log: log, Version: a.version, Hosts: append(a.config.MCPHostNames(), domain),
			Approver: mcpserver.Approver(a.config.MCP.Approver), Idle: min(time.Hour, a.config.Lifetime.Max),
		})
		if err != nil {
			panic("serve: " + err.Error()) // an option is missing
		}
		return h
	}
}
