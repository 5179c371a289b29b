package cli

import (
	"errors"
	"log/slog"
	"time"

	web "github.com/crannog/crannog/internal/console"
	boxed "github.com/crannog/crannog/internal/console/inside"
	"github.com/crannog/crannog/internal/console/live"
	"github.com/crannog/crannog/internal/daemon"
	"github.com/crannog/crannog/internal/engine"
)

// pages are the console with what serves its pages.
type pages struct {
	*web.Console
	live   *live.Live
	inside *boxed.Inside
}

// Close cuts what sessions have open, before what it stands on.
func (p pages) Close() { p.Console.Close(); p.live.Close(); p.inside.Close() }

// servePages makes what the console's pages watch and do inside sandboxes.
func servePages(in daemon.Inside, version, domain string, log *slog.Logger) (*live.Live, *boxed.Inside, error) {
	meter, _ := in.Daemon.Engine.(engine.Meter) // one that measures nothing shows nothing
	l, err := live.New(live.Deps{
		Sandboxes: in.Daemon.Service, Approvals: in.Daemon.Approvals, Record: in.Daemon.Record, Meter: meter, Log: log,
		Version: version, Started: time.Now().UTC().Truncate(time.Second),
	})
	x, insideErr := boxed.New(boxed.Deps{
		Sandboxes: in.Daemon.Service, Census: in.Daemon.Service, Dial: in.DialAs, Record: in.Daemon.Record, Log: log, Domain: domain,
	})
	return l, x, errors.Join(err, insideErr)
}
