// Package browser owns the program of the template browser: it starts Chromium, starts it again
// after a crash, and serves its DevTools protocol (CDP) on a port of the sandbox.
//
// It runs as "crannog-guest browser PROGRAM ARG...". Chromium's own DevTools port is not served
// directly, for three reasons. Chromium refuses requests whose Host header is a name. It answers
// with an address that a client outside cannot reach. The path of its browser target changes with
// each start, so a client could not connect again after a crash.
package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/guest/guestboot"
)

// Role is the first argument that selects this program. readyFlag makes it check a running one.
const (
	Role      = "browser"
	readyFlag = "--ready"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// Main runs the program, or with --ready reports whether a running one is ready. It returns the exit
// code.
func Main(args []string, stderr io.Writer) int {
	if len(args) == 0 {
		_, _ = fmt.Fprintln(stderr, "usage: crannog-guest browser PROGRAM ARG... | crannog-guest browser --ready")
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var err error
	if args[0] == readyFlag {
		err = checkReady(ctx, "http://127.0.0.1:"+strconv.Itoa(guestboot.DevToolsPort))
	} else {
		err = run(ctx, args, stderr)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "crannog-guest browser:", err)
		return exitFailed
	}
	return 0
}

// run serves until the context ends, which is an orderly end, or until the browser cannot be kept
// running.
func run(ctx context.Context, args []string, stderr io.Writer) error {
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:"+strconv.Itoa(guestboot.DevToolsPort))
	if err != nil {
		return fmt.Errorf("open the DevTools port: %w", err)
	}
	s := newSupervisor(args, home+"/.config/crannog-browser", stderr)
	server := &http.Server{
		Handler:           newFront(s, newTrust(home)),
		ReadHeaderTimeout: 10 * time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(<-served) }()
	err = s.keepRunning(ctx)
	_ = server.Close() // the program ends, and with it all connections
	return err
}

// checkReady returns an error unless the browser at an address has a page. Its first page exists as
// soon as the processes that render it have started.
func checkReady(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/json/list", nil)
	if err != nil {
		return err
	}
	res, err := (&http.Client{Timeout: waitForBrowser}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the browser answers with %s", res.Status)
	}
	var targets []struct{ Type string }
	if err := json.NewDecoder(io.LimitReader(res.Body, maxList)).Decode(&targets); err != nil {
		return fmt.Errorf("list the pages: %w", err)
	}
	if !slices.ContainsFunc(targets, func(t struct{ Type string }) bool { return t.Type == "page" }) {
		return errors.New("the browser has no page yet")
	}
	return nil
}
