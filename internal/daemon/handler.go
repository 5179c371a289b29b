package daemon

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/dataplane"
	"github.com/crannog/crannog/internal/e2bapi"
	"github.com/crannog/crannog/internal/httpapi"
	"github.com/crannog/crannog/internal/sandbox"
)

// surfaces are everything that a server answers.
type surfaces struct {
	proxy *dataplane.Proxy
	own   http.Handler
	e2b   http.Handler
}

func (d *Daemon) surfaces() *surfaces {
	o := d.options
	return &surfaces{
		proxy: dataplane.New(dataplane.Deps{Traffic: d.Service, Waker: d.Service, Log: o.Log, Domain: o.Domain}),
		own: httpapi.New(httpapi.Deps{
			Sandboxes: d.Service, Networks: d.Service, States: d.Service, Snapshots: d.Service, Pruner: d.Service, Traffic: d.Service,
			Keys: d.Keys, Engine: d.Engine, Approvals: d.Approvals,
			Auth: d.authenticate, Log: o.Log, Version: o.Version,
			Secrets: rotating{d.Secrets, d.Service},
		}),
		e2b: e2bapi.New(e2bapi.Deps{
			Sandboxes: d.Service, Networks: d.Service, States: d.Service, Snapshots: d.Service, Templates: o.Templates,
			Keys: d.Keys, Log: o.Log, Domain: o.Domain, Secrets: rotating{d.Secrets, d.Service},
		}),
	}
}

// ServeHTTP decides by what a request says of its target: first a sandbox,
// because a program inside may serve any path, then our own API, then E2B's.
func (s *surfaces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.proxy.Match(r):
		s.proxy.ServeHTTP(w, r)
	case r.URL.Path == api.Prefix || strings.HasPrefix(r.URL.Path, api.Prefix+"/"):
		s.own.ServeHTTP(w, timed(w, r))
	default:
		s.e2b.ServeHTTP(w, timed(w, r))
	}
}

// bodyTimeout bounds how long the body of a control request may take, also
// one that is refused: a client without any key could otherwise hold a
// connection for as long as it likes by never sending what it announced.
const bodyTimeout = 10 * time.Second

// timed bounds how long a request's body takes to come.
func timed(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(bodyTimeout)) != nil {
		return r // there is no connection that could be held
	}
	bounded := *r
	bounded.Body = &timedBody{r.Body, rc}
	return &bounded
}

// timedBody lifts the bound when all has come: the connection is watched on
// for the client's leaving, and what it asked for may take long.
type timedBody struct {
	io.ReadCloser
	rc *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.rc.SetReadDeadline(time.Time{}) // the connection is gone, then
	}
	return n, err
}

// localKey marks a connection of the user who runs this server.
type localKey struct{}

// markLocal looks at who is at the other end of a Unix socket. The socket's
// mode keeps others out already; this holds if somebody widens it.
func markLocal(ctx context.Context, c net.Conn) context.Context {
	unix, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return ctx
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil || credErr != nil {
		return ctx
	}
	if int(cred.Uid) != os.Geteuid() && cred.Uid != 0 {
		return ctx
	}
	return context.WithValue(ctx, localKey{}, true)
}

// authenticate says who asks our own API: whoever came through the local
// socket, or the holder of a key.
func (d *Daemon) authenticate(r *http.Request) (sandbox.Principal, error) {
	if local, _ := r.Context().Value(localKey{}).(bool); local {
		return sandbox.Principal{Local: true}, nil
	}
	secret := r.Header.Get("X-API-Key")
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && secret == "" && strings.EqualFold(scheme, "Bearer") {
		secret = strings.TrimSpace(token)
	}
	k, err := d.Keys.Verify(r.Context(), secret)
	if err != nil {
		return sandbox.Principal{}, err
	}
	return sandbox.Principal{KeyID: k.ID}, nil
}
