package main

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog"
)

// netCreateFigures measures how much a network adds to a sandbox's start.
func netCreateFigures(ctx context.Context, b *bench) (err error) {
	client, err := b.local(ctx, "netcreate")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	const (
		noNetwork   = "create, no network"
		withNetwork = "create, with a network, one host allowed"
		start       = "start of the gateway's process, until it answers"
		attach      = "attach a sandbox to it, 23 rules"
	)
	create := func(name string, opts ...crannog.CreateOption) contender {
		return contender{name, func(ctx context.Context, s *scores) error {
			began := time.Now()
			sb, err := client.Create(ctx, append(opts, crannog.Ephemeral(), crannog.Timeout(5*time.Minute))...)
			if err != nil {
				return err
			}
			s.addTime(name, time.Since(began))
			return sb.Kill(ctx)
		}}
	}
	s, err := race(ctx, b.n, create(noNetwork, crannog.Net("none")), create(withNetwork, crannog.Allow("example.com")), b.startGateway(start, attach))
	if err != nil {
		return err
	}
	sec := table("netcreate", "what a network adds to a start", "ms", s, noNetwork, withNetwork, start, attach)
	sec.against(noNetwork, withNetwork)
	sec.note("Created with crannog.Local; the gateway's process exists already, one for all sandboxes of a state directory.")
	b.report.add(sec)
	return nil
}
