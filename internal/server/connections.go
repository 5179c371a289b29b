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

// Connections bound what a server takes from clients that it does not know.
type Connections struct {
	Total, PerAddress int // connections at once
	Reserve           int // descriptors that they cannot take
	// Header is how long a request's head may take, and Idle how long a client may
	// send no further request, or read nothing of an answer.
	Header, Idle time.Duration
}

// DefaultConnections are the limits of a server that names none.
var DefaultConnections = Connections{Total: 4096, PerAddress: 1024, Reserve: 512, Header: 10 * time.Second, Idle: 5 * time.Minute}

// guard makes what bounds the connections of the public listener.
func (d *Server) guard() (*connlimit.Guard, error) {
	c := d.options.Connections
	return connlimit.New(connlimit.Options{
		Limits: connlimit.Limits{Total: c.Total, PerAddress: c.PerAddress, Reserve: c.Reserve, Stall: c.Idle},
		Log:    d.options.Log, Answer: answerRefused,
	})
}

// answerRefused tells a client that its connection is one too many, in the form
// of the API that it calls.
func answerRefused(w http.ResponseWriter, path string, refused *fault.Error) {
	if path == api.Prefix || strings.HasPrefix(path, api.Prefix+"/") {
		v1.WriteProblem(w, refused)
		return
	}
	e2b.WriteFailure(w, refused)
}

// markConnection notes who is at the other end of a connection, and that it is
// counted.
func markConnection(g *connlimit.Guard) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context { return g.Context(markLocal(ctx, c), c) }
}
