package server

import (
	"time"

	"github.com/crannog/crannog/internal/frontend/e2b"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
)

// warmUpAfter is the time after which the processes of a warm sandbox have freed the memory that
// only their start needed. They do so two seconds after the start.
const warmUpAfter = 3 * time.Second

// Pool configures the warm pool of a running server.
type Pool struct {
	Bytes     int64    // memory for warm sandboxes; zero means a share of the available memory
	Languages []string // languages that the interpreter of warm sandboxes has loaded
}

// startPool keeps sandboxes ready for requests of either API that use only default options.
func (d *Server) startPool() error {
	if d.options.Pool == nil {
		return nil
	}
	o := warmpool.Options{
		Bytes: d.options.Pool.Bytes, Preload: map[string][]string{template.CodeInterpreter: d.options.Pool.Languages}, WarmUpAfter: warmUpAfter,
	}
	for _, defaultRequest := range []func() (sandbox.CreateRequest, error){
		func() (sandbox.CreateRequest, error) { return e2b.DefaultRequest("base") },
		v1.DefaultRequest,
		func() (sandbox.CreateRequest, error) { return e2b.DefaultRequest(template.CodeInterpreter) },
	} {
		req, err := defaultRequest()
		if err != nil {
			return err
		}
		o.Defaults = append(o.Defaults, req)
	}
	d.Service.StartPool(o)
	return nil
}
