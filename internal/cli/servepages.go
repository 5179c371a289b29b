package cli

import (
	"errors"
	"log/slog"
	"time"

	web "github.com/crannog/crannog/internal/frontend/console"
	consoleinside "github.com/crannog/crannog/internal/frontend/console/inside"
	"github.com/crannog/crannog/internal/frontend/console/live"
	"github.com/crannog/crannog/internal/server"
)

// pages is the console with the services behind its pages.
type pages struct {
	*web.Console
	live   *live.Live
	inside *consoleinside.Inside
}

// Close closes the streams of sessions before the services that they use.
func (p pages) Close() { p.Console.Close(); p.live.Close(); p.inside.Close() }

// servePages creates the services for the console's pages.
func servePages(in server.Backend, version, domain string, log *slog.Logger) (*live.Live, *consoleinside.Inside, error) {
	l, err := live.New(live.Deps{
		Sandboxes: in.Server.Service, Approvals: in.Server.Approvals, Audit: in.Server.Audit, Meter: in.Server.Service, Log: log,
		Version: version, Started: time.Now().UTC().Truncate(time.Second),
	})
	x, insideErr := consoleinside.New(consoleinside.Deps{
		Sandboxes: in.Server.Service, Census: in.Server.Service, Dial: in.DialAs, Audit: in.Server.Audit, Log: log, Domain: domain,
	})
	return l, x, errors.Join(err, insideErr)
}
