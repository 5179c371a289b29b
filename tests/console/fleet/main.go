// Command fleet runs a server with many active sandboxes and the real console, to measure the work
// of page and server. The sandboxes run nothing and the engine has no boundary, so it is only for
// tests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/frontend/console"
	"github.com/crannog/crannog/internal/frontend/console/inside"
	"github.com/crannog/crannog/internal/frontend/console/live"
	"github.com/crannog/crannog/internal/frontend/console/session"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
	"github.com/crannog/crannog/internal/server/standard"
)

func main() {
	standard.Dispatch()
	sandboxes := flag.Int("sandboxes", 1000, "number of sandboxes")
	active := flag.Int("moving", 1000, "number of sandboxes in which something happens each second")
	state := flag.String("state", "", "state directory; by default a temporary one")
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *sandboxes, min(*active, *sandboxes), *state, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// busyEngine is the fake engine with sandboxes that use resources.
type busyEngine struct {
	*fake.Engine
	started time.Time
}

// Usage returns values that differ between sandboxes and change over time.
func (b busyEngine) Usage(_ context.Context, id string) (engine.Usage, error) {
	now := time.Now()
	n := int64(0)
	for _, c := range []byte(id) {
		n = n*31 + int64(c)
	}
	n = (n%97 + 97) % 97
	since := now.Sub(b.started)
	wave := time.Duration(int64(since)%int64(20*time.Second)) / 4
	return engine.Usage{At: now, CPUTime: since*time.Duration(n)/200 + wave, MemoryBytes: (64 + n + int64(wave/time.Second)) << 20, PIDs: 3}, nil
}

func run(ctx context.Context, sandboxes, active int, state, listen string) (err error) {
	if !reexec.Dispatched() {
		return errors.New("standard.Dispatch was not called")
	}
	if state == "" {
		if state, err = os.MkdirTemp("", "crannog-fleet-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(state)) }()
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	eng, err := fake.New(fake.Options{Dir: filepath.Join(state, "run"), Guest: func(spec engine.Spec) (map[int]http.Handler, func(), error) {
		return map[int]http.Handler{guestboot.Port: fake.Control(spec, nil)}, nil, nil
	}})
	if err != nil {
		return err
	}
	defer eng.Close()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	url := "http://" + l.Addr().String()
	d, err := server.Open(ctx, server.Options{
		StateDir: state, Log: log, Engines: fake.Registry(busyEngine{eng, time.Now()}), Templates: emptyTemplates{}, Server: true, Version: "fleet",
		Settings:  sandbox.Settings{AnyBoundary: true, MaxLive: sandboxes + 1},
		Frontends: []server.FrontendMount{{Path: console.Path, Open: func(in server.Backend) server.Frontend { return openConsole(in, url, log) }}},
	})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx, l) }()
	err = createFleet(ctx, d, sandboxes, active, url)
	return errors.Join(err, <-served, d.Close(context.WithoutCancel(ctx)))
}

// createFleet creates the sandboxes, prints the console's address, and generates activity until the
// context ends.
func createFleet(ctx context.Context, d *server.Server, sandboxes, active int, url string) error {
	ids, err := create(ctx, d, sandboxes)
	if err != nil {
		return err
	}
	secret, _, err := d.Sessions.Issue(ctx, "local:0", session.Request{Name: "fleet", Scope: session.Admin})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "CONSOLE=%s%s/#token=%s\n", url, console.Path, secret)
	return writeActivity(ctx, d.Audit, ids[:active])
}

// create creates sandboxes, eight at a time.
func create(ctx context.Context, d *server.Server, n int) ([]string, error) {
	ids, errs := make([]string, n), make([]error, n)
	var group sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			sb, err := d.Service.Create(ctx, sandbox.Principal{Local: true}, sandbox.CreateRequest{
				Template: "base", Name: fmt.Sprintf("box-%04d", i), Forever: true,
				Metadata: map[string]string{"team": fmt.Sprintf("team-%d", i%7), "task": fmt.Sprintf("task-%d", i)},
			})
			ids[i], errs[i] = sb.ID, err
		})
	}
	group.Wait()
	return ids, errors.Join(errs...)
}

// emptyTemplates resolves every name to an empty template.
type emptyTemplates struct{}

// Resolve implements sandbox.Templates.
func (emptyTemplates) Resolve(context.Context, sandbox.Reference) (sandbox.Template, error) {
	return sandbox.Template{ID: "aaaaaaaaaaaaaaaaaaaa", Name: "base", Image: engine.ViewOf("/", "")}, nil
}

// consoleFrontend is the console with its live data and its access to sandboxes.
type consoleFrontend struct {
	*console.Console
	live   *live.Live
	inside *inside.Inside
}

// Close implements server.Frontend.
func (d consoleFrontend) Close() { d.Console.Close(); d.live.Close(); d.inside.Close() }

// openConsole assembles the console as the product does.
func openConsole(in server.Backend, url string, log *slog.Logger) server.Frontend {
	l, err := live.New(live.Deps{
		Sandboxes: in.Server.Service, Approvals: in.Server.Approvals, Audit: in.Server.Audit, Meter: in.Server.Service, Log: log,
		Version: "fleet", Started: time.Now(),
	})
	x, insideErr := inside.New(inside.Deps{
		Sandboxes: in.Server.Service, Census: in.Server.Service, Dial: in.DialAs, Audit: in.Server.Audit, Log: log,
	})
	c, consoleErr := console.New(console.Options{
		Sessions: in.Server.Sessions, Act: in.Act, Authenticate: in.Authenticate, Refused: in.Server.Service.Refused, Live: l, Inside: x,
		About: console.About{Version: "fleet", Engine: "fake", Boundary: "none"}, Base: url, Log: log,
	})
	if err := errors.Join(err, insideErr, consoleErr); err != nil {
		panic(err) // a bug of this program
	}
	return consoleFrontend{c, l, x}
}
