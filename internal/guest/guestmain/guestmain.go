// Package guestmain owns the guest as a program, which is the first process of a sandbox. It
// configures the system, listens, reaps processes, and ends the sandbox at its end time.
package guestmain

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/browser"
	"github.com/crannog/crannog/internal/guest/connect"
	"github.com/crannog/crannog/internal/guest/fetch"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/modules"
	"github.com/crannog/crannog/internal/guest/offline"
	"github.com/crannog/crannog/internal/guest/reap"
	"github.com/crannog/crannog/internal/guest/relay"
	"github.com/crannog/crannog/internal/guest/search"
	"github.com/crannog/crannog/internal/guest/sftpserver"
	"github.com/crannog/crannog/internal/guest/unpack"
)

// debugFlag leaves standard output and error open and logs to standard error.
const debugFlag = "--debug"

// platform has the parts of the system that tests replace.
type platform struct {
	root   string // directory of the system's files
	events string // path of the file with events
	// become sets the host name, and generates a new boot ID if fresh is set.
	become func(hostname string, fresh bool) error
	// machine is nil unless the guest is the first process of a virtual machine.
	machine Machine
}

// Play runs the guest, or another role that the first argument selects. It does not return.
func Play() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case search.Role:
			os.Exit(search.Main(os.Args[2:], os.Stdout))
		case sftpserver.Role:
			os.Exit(sftpserver.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case connect.Role:
			os.Exit(connect.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case browser.Role:
			os.Exit(browser.Main(os.Args[2:], os.Stderr))
		case fetch.Role:
			os.Exit(fetch.Main(os.Args[2:], os.Stdout))
		case guestboot.ChannelRole:
			Channel()
		case guestboot.GatewayRole:
			Gateway()
		}
	}
	Main()
}

// Main runs the guest. It does not return.
func Main() { mainIn(platform{root: "/", events: eventsPath, become: become}) }

// mainIn runs the guest on a platform. It does not return.
func mainIn(p platform) { os.Exit(statusIn(p, os.Args[1:])) }

// Run runs the guest and returns its exit status. It is for engines that prepare the process before
// it becomes the guest.
func Run(args ...string) int {
	return statusIn(platform{root: "/", events: eventsPath, become: become}, args)
}

// statusIn runs the guest on a platform and returns its exit status.
func statusIn(p platform, args []string) int {
	err := run(os.Stdin, args, p)
	if err == nil {
		return 0
	}
	// Standard error may have no reader. The exit status reports the failure too.
	report(os.Stderr, err)
	return 1
}

// report writes the error with which the guest ends.
func report(w io.Writer, err error) { _, _ = fmt.Fprintln(w, "crannog-guest:", err) }

// run serves until the sandbox ends.
func run(stdin io.Reader, args []string, p platform) error {
	tune()
	debug := slices.Contains(args, debugFlag)
	if err := closeOnExec(); err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if debug {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	cfg, archive, err := guest.Decode(stdin)
	if err != nil {
		return err
	}
	if err := checkHostFiles(cfg); err != nil {
		return err
	}
	if slices.Contains(args, guestboot.PlainFlag) {
		if p, err = plain(p, &cfg); err != nil {
			return err
		}
	}
	b := &guestSandbox{platform: p, users: identity.NewPasswd("/etc"), log: log, standard: standard{in: 0, out: 1, err: 2}}
	// This must come first, because files that are opened earlier would remain those of the host.
	if err := b.rename(cfg.Hostname, false); err != nil {
		return err
	}
	b.hostname = cfg.Hostname
	if cfg.Renew == "" {
		// This precedes the archive, which may contain files that programs created at these paths
		// later.
		if err := conceal(p.root, cfg); err != nil {
			return err
		}
	}
	if archive != nil {
		// The archive may contain the user database and the users' homes.
		if err := unpack.Over(p.root, archive); err != nil {
			return err
		}
	}
	b.mu.Lock()
	source, err := b.boot(cfg, args)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, guestboot.Ready); err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	if !debug {
		if b.standard, err = replaceStandardStreams(); err != nil {
			return err
		}
	}
	go b.serveEvents(source)
	if p.machine != nil {
		go b.serveMachine(p.machine)
	}
	time.AfterFunc(releaseAfter, releaseStartMemory)
	err = <-b.failed
	if err != nil && b.standard.err != 2 {
		// An engine may be waiting for this sandbox to continue.
		report(descriptor(b.standard.err), err)
	}
	return err
}

// boot configures the sandbox according to cfg. b.mu must be held.
func (b *guestSandbox) boot(cfg guest.Config, args []string) (*events, error) {
	b.failed = make(chan error, 8)
	// Installing signal handlers is slow here, and nothing below depends on it.
	signalsIgnored := make(chan struct{})
	go func() {
		ignoreSignals()
		close(signalsIgnored)
	}()
	if slices.Contains(args, guestboot.GatewayFlag) {
		// The checks of the configuration use the ports.
		if err := serveGateway(b.failed); err != nil {
			return nil, err
		}
	}
	// Preparing the system and creating the guest run concurrently. No program runs yet that could
	// change the files between their writing and the checks.
	prepared := make(chan error, 1)
	go func() { prepared <- b.prepare(cfg) }()
	lookups, err := offlineNames(cfg)
	if err != nil {
		return nil, err
	}
	reaper := reap.NewAll()
	go func() { b.failed <- reaper.Run(context.Background()) }()

	runner, err := modules.FromArguments(args)
	if err != nil {
		return nil, err
	}
	if runner != nil && slices.Contains(args, guestboot.GatewayFlag) {
		runner.Gateway = func() (relay.Gateway, error) { return dialGateway(context.Background()) }
	}
	b.guest, err = guest.New(cfg, guest.Options{
		Modules: runner,
		Users:   b.users, Switch: os.Geteuid() == 0, Reaper: reaper, Log: b.log, Lookups: lookups, NpmConfig: npmConfig(b.platform.root),
		End: func() { b.failed <- nil }, Claim: b.claim,
	})
	if err != nil {
		return nil, err
	}
	b.interpreter = NewInterpreter(b.guest, runner, b.log)
	if err := b.listen(args); err != nil {
		return nil, err
	}
	source, err := watchEvents(b.platform.events)
	if err != nil {
		return nil, err
	}
	if err := <-prepared; err != nil {
		return nil, err
	}
	b.preload(cfg.Preload)
	<-signalsIgnored
	return source, nil
}

// npmConfig returns the path of the sandbox's npm configuration, if the template has one.
func npmConfig(root string) string {
	if info, err := os.Stat(filepath.Join(root, guest.NpmConfig)); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return guest.NpmConfig
}

// listen starts all servers. They are never closed: when the first process ends, the kernel ends
// all others and closes all connections.
func (b *guestSandbox) listen(args []string) error {
	servers := map[int]*http.Server{}
	for port, handler := range map[int]http.Handler{guestboot.Port: b.guest.Handler(), guestboot.InterpreterPort: b.interpreter} {
		var err error
		if servers[port], err = b.serve(port, handler); err != nil {
			return err
		}
	}
	var guestChannel *channel // nil if the engine passed none
	if slices.Contains(args, guestboot.ChannelFlag) {
		var err error
		if guestChannel, err = givenChannel(); err != nil {
			return err
		}
	}
	var direct net.Listener // nil if the engine passed none
	if slices.Contains(args, guestboot.ListenerFlag) {
		var err error
		if direct, err = givenListener(); err != nil {
			return err
		}
	}
	return serveRelay(guestChannel, direct, &b.streams, servers, b.platform.machine, b.failed)
}

// preload starts workers of the interpreter. If one fails, the first request starts it again and
// gets the error.
func (b *guestSandbox) preload(languages []string) {
	var workers sync.WaitGroup
	for _, language := range languages {
		workers.Go(func() {
			if err := b.interpreter.Preload(context.Background(), language); err != nil {
				b.log.Warn("language not preloaded", "language", language, "err", err)
			}
		})
	}
	workers.Wait()
}

// offlineNames answers DNS queries in a sandbox without a network. It returns a function that lists
// the queried names.
func offlineNames(cfg guest.Config) (func() guest.Lookups, error) {
	if !cfg.Offline {
		return nil, nil
	}
	server, err := offline.Listen(offline.Address)
	if err != nil {
		return nil, err
	}
	return func() guest.Lookups {
		var out guest.Lookups
		for _, n := range server.Lookups() {
			out.Names = append(out.Names, n.Name)
			out.AgoUS = append(out.AgoUS, time.Since(n.At).Microseconds())
		}
		return out
	}, nil
}

// idleTimeout is longer than clients keep idle connections. Clients thus close them first and do
// not lose a request. It also limits the time until a first request, because clients may open a
// connection and not use it at once.
const idleTimeout = 10 * time.Minute

// serve listens on the sandbox's loopback interface and serves in the background.
func (b *guestSandbox) serve(port int, h http.Handler) (*http.Server, error) {
	listener, err := listen(port)
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: idleTimeout, IdleTimeout: idleTimeout, ConnState: b.streams.observe,
		ErrorLog: slog.NewLogLogger(b.log.Handler(), slog.LevelWarn),
	}
	go func() { b.failed <- server.Serve(listener) }()
	return server, nil
}
