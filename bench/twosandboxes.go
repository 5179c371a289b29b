package main

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog"
)

// twoSandboxes creates a sandbox without a server and one on a server. end removes both and stops
// the server.
func (b *bench) twoSandboxes(ctx context.Context, name string) (local, served *crannog.Sandbox, end func() error, err error) {
	client, err := b.local(ctx, name+"-local")
	if err != nil {
		return nil, nil, nil, err
	}
	end = client.Close
	defer func() {
		if err != nil {
			err = errors.Join(err, end())
		}
	}()
	srv, err := b.serve(ctx, b.crannog, name+"-serve")
	if err != nil {
		return nil, nil, nil, err
	}
	end = func() error { return errors.Join(srv.close(), client.Close()) }
	if local, err = client.Create(ctx, crannog.Ephemeral()); err != nil {
		return nil, nil, nil, err
	}
	served, err = srv.client.Create(ctx, crannog.Timeout(10*time.Minute))
	return local, served, end, err
}
