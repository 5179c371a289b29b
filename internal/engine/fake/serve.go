package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// instance is one sandbox of this process.
type instance struct {
	id      string
	created time.Time
	limits  engine.Limits
	control string // token of the control service
	ports   map[int]*listener
	servers []*http.Server
	end     func()
	done    chan struct{}
	state   *State

	// Each command locks turn for reading while it runs; it is locked for writing while no command
	// may run. one serialises the commands. The order of the locks is freezing, turn, one.
	turn     sync.RWMutex
	one      sync.Mutex
	loops    map[*loop]bool // guarded by one
	watch    *watch         // guarded by one
	freezing sync.Mutex
	isFrozen bool // guarded by freezing

	next atomic.Pointer[instance] // the instance that has replaced this one

	once sync.Once
	exit engine.Exit // written before done is closed
}

// serve starts the guest of a new instance. Its events continue those of the previous instance, if
// there was one.
func (e *Engine) serve(spec engine.Spec, dir string, before *watch) (*instance, error) {
	state, loops, err := load(spec, dir)
	if err != nil {
		return nil, fmt.Errorf("saved state: %w", err)
	}
	var config guest.Config
	if len(spec.Boot.Config) > 0 {
		if err := json.Unmarshal(spec.Boot.Config, &config); err != nil {
			return nil, fmt.Errorf("guest configuration: %w", err)
		}
	}
	b := &instance{
		id: spec.ID, created: time.Now(), limits: spec.Limits.OrDefault(), control: config.ControlToken, state: state,
		ports: map[int]*listener{}, done: make(chan struct{}), loops: map[*loop]bool{},
	}
	guest := e.options.Guest
	if e.options.programs {
		if guest, err = b.programs(spec, loops, before); err != nil {
			return nil, err
		}
	}
	handlers, end, err := guest(spec)
	if err != nil {
		return nil, err
	}
	b.end = end
	for port, handler := range handlers {
		l := newListener()
		srv := &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
		b.ports[port] = l
		b.servers = append(b.servers, srv)
		go func() { _ = srv.Serve(l) }() // always ends because l is closed
	}
	return b, nil
}

// programs returns a guest with the fake's own programs.
func (b *instance) programs(spec engine.Spec, loops []loop, before *watch) (Guest, error) {
	var err error
	if b.state.host, err = openHostFiles(spec); err != nil {
		return nil, err
	}
	if b.watch, err = newWatch(spec, b.state, before); err != nil {
		return nil, err
	}
	p := &processes{b: b}
	return func(spec engine.Spec) (map[int]http.Handler, func(), error) {
		return map[int]http.Handler{guestboot.Port: Control(spec, p.handler())}, nil, p.restart(loops)
	}, nil
}

// stop ends the guest and closes all streams. It reports whether this was the first call.
func (b *instance) stop(exit engine.Exit) (first bool) {
	b.once.Do(func() {
		first = true
		for _, l := range b.ports {
			l.Close()
		}
		for _, srv := range b.servers {
			srv.Close()
		}
		if b.end != nil {
			b.end()
		}
		b.exit = exit
		close(b.done)
		b.releasePrograms()
		b.turn.Lock() // running commands have ended
		defer b.turn.Unlock()
		if b.watch != nil {
			_ = b.recordChanges() // if the file is full, the last changes are lost
			b.watch.file.Close()
			b.watch = nil
		}
		_ = b.state.host.close() // the files were only read
	})
	return first
}

// running reports whether the sandbox has not ended.
func (b *instance) running() bool {
	select {
	case <-b.done:
		return false
	default:
		return true
	}
}

// dial opens a stream to a port of the guest.
func (b *instance) dial(ctx context.Context, port int) (net.Conn, error) {
	l := b.ports[port]
	if l == nil {
		return nil, fault.Newf(fault.Unavailable, "port_closed", "no program listens on port %d of %s", port, b.id)
	}
	conn, err := l.dial(ctx)
	if errors.Is(err, net.ErrClosed) {
		return nil, unknown(b.id)
	}
	return conn, err
}

// checkReady returns an error unless the guest answers that it is ready.
func (b *instance) checkReady(ctx context.Context) error {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return b.dial(ctx, guestboot.Port)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://guest"+guest.PathReady, nil)
	if err != nil {
		return err
	}
	req.Header.Set(guest.ControlHeader, b.control)
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		return fmt.Errorf("answered %s", res.Status)
	}
	return nil
}

// controlOnly returns a guest with only the control service.
func controlOnly(spec engine.Spec) (map[int]http.Handler, func(), error) {
	return map[int]http.Handler{guestboot.Port: Control(spec, nil)}, nil, nil
}

// Control serves a guest's control service for tests with their own handlers. It answers that the
// guest is ready, and passes each update to updated. Other requests go to next. If next is nil,
// they are answered with 404.
func Control(spec engine.Spec, next http.Handler, updated ...func(guest.Update)) http.Handler {
	var config guest.Config
	err := json.Unmarshal(spec.Boot.Config, &config)
	mux := http.NewServeMux()
	if next != nil {
		mux.Handle("/", next)
	}
	mux.HandleFunc("GET "+guest.PathReady, func(w http.ResponseWriter, r *http.Request) {
		if err != nil || r.Header.Get(guest.ControlHeader) != config.ControlToken {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST "+guest.PathUpdate, func(w http.ResponseWriter, r *http.Request) {
		var u guest.Update
		if err != nil || r.Header.Get(guest.ControlHeader) != config.ControlToken {
			http.NotFound(w, r)
			return
		}
		if err := json.NewDecoder(r.Body).Decode(&u); err != nil {
			http.Error(w, "malformed update", http.StatusBadRequest)
			return
		}
		for _, f := range updated {
			f(u)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}
