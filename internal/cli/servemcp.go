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

// doors are the handlers of a server beside the API and the E2B API.
func (a *app) doors(base, domain string, rules sandbox.Settings, log *slog.Logger) []server.Opening {
	return []server.Opening{
		{Path: "/mcp", Open: a.mcpDoor(domain, log)},
		{Path: web.Path, Open: a.consoleDoor(base, domain, rules, log), Home: true},
	}
}

// mcpDoor serves the tools of agents in front of a server.
func (a *app) mcpDoor(domain string, log *slog.Logger) func(server.Inside) server.Door {
	return func(in server.Inside) server.Door {
		h, err := mcpserver.NewHTTP(mcpserver.HTTPOptions{
			Authenticate: in.Server.AgentKey,
			Dial: func(ctx context.Context, key string) (net.Conn, error) {
				return in.DialAs(ctx, sandbox.Principal{KeyID: key})
			},
			Refused: in.Server.Service.Refused, Log: log, Version: a.Version, Hosts: append(a.config.MCPHostNames(), domain),
			Approver: mcpserver.Approver(a.config.MCP.Approver), Idle: min(time.Hour, a.config.MaxTimeout),
		})
		if err != nil {
			panic("serve: " + err.Error()) // an option is missing
		}
		return h
	}
}
