package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// withEarlier is added to the names of steps of an earlier build.
const withEarlier = ", earlier build"

// stateAgainst measures the steps of two builds in turns, each on a server of its own. Between two
// runs, times differ by more than between the builds, so separate runs prove little.
func (b *bench) stateAgainst(ctx context.Context, now *server) (err error) {
	earlier, err := b.serve(ctx, b.earlier, "state-earlier", "--max-live", "1000")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, earlier.close()) }()
	for _, size := range dirtySizes {
		if err := b.stateInTurns(ctx, now, earlier, size.name, size.bytes, b.stateRounds(size.bytes)); err != nil {
			return fmt.Errorf("%s: %w", size.name, err)
		}
	}
	return nil
}

func (b *bench) stateInTurns(ctx context.Context, now, earlier *server, name string, bytes int64, rounds int) (err error) {
	var contenders []contender
	for _, one := range []struct {
		srv    *server
		suffix string
	}{{now, ""}, {earlier, withEarlier}} {
		sb, createErr := dirtySandbox(ctx, one.srv, bytes)
		if createErr != nil {
			return createErr
		}
		defer func() { err = errors.Join(err, sb.Kill(ctx)) }()
		contenders = append(contenders, contender{name + one.suffix, func(ctx context.Context, s *scores) error {
			if err := one.srv.rest(ctx); err != nil {
				return err
			}
			return stateRound(ctx, one.srv, sb, bytes, func(step string, took time.Duration) { s.addTime(step+one.suffix, took) })
		}})
	}
	s, raceErr := race(ctx, rounds, contenders...)
	if raceErr != nil {
		return raceErr
	}
	sec := table("state", "a sandbox whose Python holds "+name+", in turns with an earlier build", "ms", s)
	for _, step := range []string{didSnapshot, didRollback, didRollback + toAnswer, didPause, didResume, didResume + toAnswer} {
		sec.against(step+withEarlier, step)
	}
	b.report.add(sec)
	return nil
}
