package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/crannog/crannog"
)

// refill is how long a server gets after each round to prepare the next warm sandbox. Real requests
// have pauses too, in which such work delays no caller.
const refill = 400 * time.Millisecond

const (
	nameWarm = "a sandbox, from the pool"
	nameCold = "a sandbox, cold"
)

// ttiFigures measures the time from a request for a sandbox to the result of a first command in it.
func ttiFigures(ctx context.Context, b *bench) (err error) {
	warm, err := b.serve(ctx, b.crannog, "tti-warm", "--max-live", "1000", "--verbose")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, warm.close()) }()
	cold, err := b.serve(ctx, b.crannog, "tti-cold", "--max-live", "1000", "--pool", "off")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cold.close()) }()
	if err := warm.awaitMoreWarm(ctx, 0); err != nil {
		return err
	}
	if err := b.ttiOne(ctx, warm, cold); err != nil {
		return err
	}
	if err := b.ttiCrowd(ctx, warm, cold); err != nil {
		return err
	}
	return b.npmFigures(ctx, "tti", 1.5, warm, cold)
}

// ttiOne measures one sandbox at a time, of each kind in turn.
func (b *bench) ttiOne(ctx context.Context, warm, cold *server) error {
	liveSandbox, err := cold.client.Create(ctx, crannog.Timeout(time.Hour))
	if err != nil {
		return err
	}
	all := []contender{bare(nameBare, "/bin/true")}
	if found("bwrap") {
		all = append(all, bare(nameBwrap, bubblewrap("/bin/true")...))
	}
	if found(b.runsc) {
		if err := os.MkdirAll(filepath.Join(b.dir, "stock"), 0o700); err != nil {
			return err
		}
		all = append(all, bare(nameStock, b.stockDo("/bin/true")...))
	}
	const create, again = ": create returns", ": a second command"
	sb := func(name string, srv *server) contender {
		return contender{name, func(ctx context.Context, s *scores) error {
			began := time.Now()
			sb, err := srv.client.Create(ctx, crannog.Timeout(5*time.Minute))
			if err != nil {
				return err
			}
			s.addTime(name+create, time.Since(began))
			_, err = execTimed(ctx, sb, "true")
			s.addTime(name, time.Since(began))
			if err == nil {
				var took time.Duration
				took, err = execTimed(ctx, sb, "true")
				s.addTime(name+again, took)
			}
			return errors.Join(err, sb.Kill(ctx), srv.rest(ctx))
		}}
	}
	const exec = "`true` in a live sandbox"
	all = append(all, sb(nameWarm, warm), sb(nameCold, cold), inSandbox(exec, liveSandbox, "true"))
	s, err := race(ctx, 2*b.n, all...)
	if err != nil {
		return err
	}
	sec := table("tti", "from nothing to the end of `true`, one after the other", "ms", s,
		nameBare, nameBwrap, nameStock, nameWarm, nameCold, exec, nameWarm+create, nameCold+create, nameWarm+again, nameCold+again)
	sec.tails99(s)
	sec.against(nameStock, nameWarm, nameCold, nameBwrap)
	sec.target(nameCold, "≤ 0.80× "+nameStock, func(r row) bool { return r.Ratio > 0 && r.Ratio <= 0.8 })
	sec.target(nameWarm+create, "≤ 5 ms, p99 ≤ 20 ms", func(r row) bool { return r.P50 <= 5 && r.P99 != nil && *r.P99 <= 20 })
	if r := sec.find(exec); r != nil {
		limit := r.P50 + 5
		sec.target(nameWarm, "≤ "+exec+" + 5 ms", func(r row) bool { return r.P50 <= limit })
	}
	b.report.add(sec)
	return liveSandbox.Kill(ctx)
}

// rest waits until the server has created all sandboxes and prestarted kernels that it keeps ready.
// It assumes so when their number has not changed for a while.
func (s *server) rest(ctx context.Context) error {
	deadline := time.After(5 * time.Second)
	for last, same := "", 0; same < 4; {
		names, err := filepath.Glob(filepath.Join(s.state, "run", "*"))
		if err != nil {
			return err
		}
		now := strings.Join(names, "")
		if same++; now != last {
			last, same = now, 0
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return nil
		case <-time.After(refill / 4):
		}
	}
	return nil
}
