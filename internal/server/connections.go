package server

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/e2b"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/server/connlimit"
)

// Connections limit the connections of clients on the network.
type Connections struct {
	Total, PerAddress int // connections at once
	Reserve           int // number of file descriptors that clients cannot use
	// Header is the time limit for the head of a request. Idle is how long a client may send no
	// further request, or read nothing of an answer.
	Header, Idle time.Duration
}

// DefaultConnections are the limits of a server without settings.
var DefaultConnections = Connections{Total: 4096, PerAddress: 1024, Reserve: 512, Header: 10 * time.Second, Idle: 5 * time.Minute}

// guard creates the guard of the public listener.
func (d *Server) guard() (*connlimit.Guard, error) {
	c := d.options.Connections
	return connlimit.New(connlimit.Options{
		Limits: connlimit.Limits{Total: c.Total, PerAddress: c.PerAddress, Reserve: c.Reserve, Stall: c.Idle},
		Log:    d.options.Log, Answer: answerRefused,
	})
}

// answerRefused tells a client that there are too many connections, in the format of the API that
// it calls.
func answerRefused(w http.ResponseWriter, path string, refused *fault.Error) {
	if path == api.Prefix || strings.HasPrefix(path, api.Prefix+"/") {
		v1.WriteProblem(w, refused)
		return
	}
	e2b.WriteFailure(w, refused)
}

// markConnection returns the function that stores in a connection's context whether its peer is a
// local user, and that the guard counts the connection.
func markConnection(g *connlimit.Guard) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context { return g.Context(markLocal(ctx, c), c) }
}
