package server

import (
	"time"

	"github.com/crannog/crannog/internal/frontend/e2b"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
)

// interpreterTemplate is the name under which E2B's interpreter asks for the
// host's template.
const interpreterTemplate = "code-interpreter-v1"

// rehearseAfter is when a sandbox that waits has given back what only its start
// needed, which its processes do two seconds after they have started.
const rehearseAfter = 3 * time.Second

// Pool says that sandboxes wait for callers while the server runs.
type Pool struct {
	Bytes     int64    // the memory that they may use; zero is a share of what is available
	Languages []string // that the interpreter has loaded in those of its template
}

// startPool keeps sandboxes warm for requests that use only default options, on either API.
func (d *Server) startPool() error {
	if d.options.Pool == nil {
		return nil
	}
	o := warmpool.Options{
		Bytes: d.options.Pool.Bytes, Preload: map[string][]string{interpreterTemplate: d.options.Pool.Languages}, Rehearse: rehearseAfter,
	}
	for _, usual := range []func() (sandbox.CreateRequest, error){
		func() (sandbox.CreateRequest, error) { return e2b.Usual("base") },
		v1.Usual,
		func() (sandbox.CreateRequest, error) { return e2b.Usual(interpreterTemplate) },
	} {
		req, err := usual()
		if err != nil {
			return err
		}
		o.Usual = append(o.Usual, req)
	}
	d.Service.StartPool(o)
	return nil
}
