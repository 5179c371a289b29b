// Package guestmain owns the guest as a program: the first process of a
// sandbox. It prepares the system around it, listens, reaps, and ends the
// sandbox when its time has come.
package guestmain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/offline"
	"github.com/crannog/crannog/internal/guest/probe"
	"github.com/crannog/crannog/internal/guest/reap"
)

// debugFlag keeps standard output and error open and logs to the latter.
const debugFlag = "--debug"

// maxConfig bounds what is read from standard input.
const maxConfig = 4 << 20

// Main is the program. It does not return.
func Main() {
	err := run(os.Stdin, os.Args[1:])
	if err == nil {
		os.Exit(0)
	}
	// Nobody may be there to read it; the exit status says the rest.
	_, _ = fmt.Fprintln(os.Stderr, "crannog-guest:", err)
	os.Exit(1)
}

// run serves until the sandbox's end.
func run(stdin io.Reader, args []string) error {
	tune()
	debug := slices.Contains(args, debugFlag)
	if err := keepDescriptors(); err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if debug {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	cfg, err := readConfig(stdin)
	if err != nil {
		return err
	}
	// Each signal is taken by way of another thread, which is slow here and
	// needs nothing of what follows.
	taken := make(chan struct{})
	go func() {
		ignoreSignals()
		close(taken)
	}()
	users := identity.NewPasswd("/etc")
	// The system around the guest is prepared while the guest is made. No
	// program runs yet that could change what is then looked at.
	prepared := make(chan error, 1)
	go func() {
		err := prepare(cfg, users, log)
		if err == nil {
			err = probe.Run(context.Background(), cfg.Checks)
		}
		prepared <- err
	}()
	asked, err := offlineNames(cfg)
	if err != nil {
		return err
	}
	reaper := reap.NewAll()
	failed := make(chan error, 4)
	go func() { failed <- reaper.Run(context.Background()) }()

	g, err := guest.New(cfg, guest.Options{
		Users: users, Switch: os.Geteuid() == 0, Reaper: reaper, Log: log, Asked: asked,
		End: func() { failed <- nil },
	})
	if err != nil {
		return err
	}
	// Nothing is closed on the way out: when the first process ends, the
	// kernel ends all others and cuts all streams, and sooner than we could.
	ports := map[int]http.Handler{engine.GuestPort: g.Handler(), engine.InterpreterPort: NewInterpreter(g, log)}
	servers := map[int]*http.Server{}
	for port, handler := range ports {
		if servers[port], err = serve(port, handler, log, failed); err != nil {
			return err
		}
	}
	var first net.Conn
	if slices.Contains(args, engine.GuestChannel) {
		if first, err = firstChannel(); err != nil {
			return err
		}
	}
	if err := serveRelay(first, servers, failed); err != nil {
		return err
	}
	if err := <-prepared; err != nil {
		return err
	}
	<-taken
	if _, err := fmt.Fprintln(os.Stdout, engine.GuestReady); err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	if !debug {
		if err := silence(); err != nil {
			return err
		}
	}
	time.AfterFunc(settleAfter, settle)
	return <-failed
}

// offlineNames answers for names in a sandbox without a network.
func offlineNames(cfg guest.Config) (func() []string, error) {
	if !cfg.Offline {
		return nil, nil
	}
	server, err := offline.Listen(offline.Address)
	if err != nil {
		return nil, err
	}
	return server.Asked, nil
}

// readConfig takes the configuration from standard input, which its writer
// closes behind it.
func readConfig(stdin io.Reader) (guest.Config, error) {
	var cfg guest.Config
	in := json.NewDecoder(io.LimitReader(stdin, maxConfig))
	in.DisallowUnknownFields()
	if err := in.Decode(&cfg); err != nil {
		return cfg, fmt.Errorf("read configuration: %w", err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return cfg, errors.New("read configuration: more than one object")
	}
	return cfg, nil
}

// idleTimeout is longer than clients keep connections, so that it is they who
// close an idle one and never lose a request on it. It bounds the wait for a
// first request too: a client may open a connection, send that request on
// another one that has just become free, and keep this one for later.
const idleTimeout = 10 * time.Minute

// serve listens on the sandbox's loopback and serves in the background.
func serve(port int, h http.Handler, log *slog.Logger, failed chan<- error) (*http.Server, error) {
	listener, err := listen(port)
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: idleTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	go func() { failed <- server.Serve(listener) }()
	return server, nil
}
