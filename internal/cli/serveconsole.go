package cli

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/config"
	web "github.com/crannog/crannog/internal/frontend/console"
	"github.com/crannog/crannog/internal/frontend/console/session"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
)

// consoleFrontend returns a function that creates the web console of a server.
func (a serverVerbs) consoleFrontend(base, domain string, rules sandbox.Settings, log *slog.Logger) func(server.Backend) server.Frontend {
	return func(in server.Backend) server.Frontend {
		f, err := a.newConsoleFrontend(in, base, domain, rules, log)
		if err != nil {
			panic("serve: " + err.Error()) // an option is missing, or the embedded files are damaged
		}
		return f
	}
}

// newConsoleFrontend creates the web console of a server.
func (a serverVerbs) newConsoleFrontend(in server.Backend, base, domain string, rules sandbox.Settings, log *slog.Logger) (server.Frontend, error) {
	d, info := in.Server, in.Server.Engines.Default().Info()
	live, inside, err := servePages(in, a.version, domain, log)
	if err != nil {
		return nil, err
	}
	c, err := web.New(web.Options{
		Sessions: d.Sessions, Act: in.Act, Authenticate: in.Authenticate, Refused: d.Service.Refused, Live: live, Inside: inside,
		Machine: machine{a.app, d, log}, Policies: d.Service, Rules: rules, History: d.Audit,
		About: web.About{
			Version: a.version, Domain: domain, Engine: info.Name, Boundary: string(info.Boundary), Started: time.Now().UTC().Truncate(time.Second),
		},
		Base: base, Hosts: append(a.config.MCPHostNames(), domain, hostOf(a.config.HTTP.Listen)), Log: log,
	})
	if err != nil {
		return nil, err
	}
	return pages{c, live, inside}, nil
}

// machine provides the information about this machine that the console shows.
type machine struct {
	a      *app
	server *server.Server
	log    *slog.Logger
}

// Doctor implements console.Machine.
func (m machine) Doctor(ctx context.Context) any { return doctorVerbs{m.a}.examine(ctx) }

// Settings implements console.Machine.
func (m machine) Settings() []config.Value { return m.a.config.Values() }

// Templates implements console.Machine.
func (m machine) Templates() []web.Template {
	created, err := m.server.MadeTemplates()
	if err != nil {
		m.log.Warn("templates not listed", "err", err)
	}
	var list []web.Template
	// A template of the machine may replace one of the host.
	host := slices.DeleteFunc(template.Known(), func(known [2]string) bool {
		return slices.ContainsFunc(created, func(t [2]string) bool { return t[1] == known[1] })
	})
	for _, t := range slices.Concat(host, created) {
		list = append(list, web.Template{ID: t[0], Name: t[1]})
	}
	return list
}

// firstLink returns the line of the start message with a sign-in link for the console. This adds no
// risk, since the message also shows a key.
func (a serverVerbs) firstLink(ctx context.Context, d *server.Server, base string) (string, error) {
	if !web.Built() {
		return "note: " + web.NotBuilt, nil
	}
	token, _, err := d.Sessions.Issue(ctx, "server", session.Request{Scope: session.Admin})
	if err != nil {
		return "", err
	}
	return "console " + web.LinkOf(base, token), nil
}
