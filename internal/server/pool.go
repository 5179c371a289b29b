package server

import (
	"time"

	"github.com/crannog/crannog/internal/frontend/e2b"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
)

// interpreterTemplate is the name of the host's template in requests of E2B's code interpreter.
const interpreterTemplate = "code-interpreter-v1"

// warmUpAfter is when a warm sandbox has freed the memory that only its start needed. Its processes
// do so two seconds after they have started.
const warmUpAfter = 3 * time.Second

// Pool configures the warm pool of a running server.
type Pool struct {
	Bytes     int64    // memory for warm sandboxes; zero means a share of the available memory
	Languages []string // languages that the interpreter of warm sandboxes has loaded
}

// startPool keeps sandboxes warm for requests that use only default options, on either API.
func (d *Server) startPool() error {
	if d.options.Pool == nil {
		return nil
	}
	o := warmpool.Options{
		Bytes: d.options.Pool.Bytes, Preload: map[string][]string{interpreterTemplate: d.options.Pool.Languages}, WarmUpAfter: warmUpAfter,
	}
	for _, usual := range []func() (sandbox.CreateRequest, error){
		func() (sandbox.CreateRequest, error) { return e2b.DefaultRequest("base") },
		v1.DefaultRequest,
		func() (sandbox.CreateRequest, error) { return e2b.DefaultRequest(interpreterTemplate) },
	} {
		req, err := usual()
		if err != nil {
			return err
		}
		o.Defaults = append(o.Defaults, req)
	}
	d.Service.StartPool(o)
	return nil
}
