package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog"
)

// crowdRounds returns how often each kind creates its sandboxes. One round would not show how much
// the cost varies.
func (f flags) crowdRounds() int { return min(5, f.n) }

const allSuffix = ": all"

// ttiCrowdRun has the scores of crowds that take turns.
type ttiCrowdRun struct {
	b            *bench
	times, costs *scores
	failed       []string
}

// ttiCrowd measures many sandboxes that are requested at the same moment, and their cost.
func (b *bench) ttiCrowd(ctx context.Context, warm, cold *server) error {
	w := &ttiCrowdRun{b: b, times: newScores(), costs: newScores()}
	var all []func() error
	if found("bwrap") {
		all = append(all, func() error { return w.bare(ctx, nameBwrap, bubblewrap("/bin/true")) })
	}
	if found(b.runsc) {
		all = append(all, func() error { return w.bare(ctx, nameStock, b.stockDo("/bin/true")) })
	}
	all = append(all,
		func() error { return w.sandboxes(ctx, nameWarm, warm) },
		func() error { return w.sandboxes(ctx, nameCold, cold) })
	if err := runInTurns(b.crowdRounds(), all); err != nil {
		return err
	}
	sec := table("tti", "from nothing to the end of `true`, many at once", "ms", w.times)
	sec.tails99(w.times)
	sec.Notes = w.failed
	sec.against(nameStock, nameWarm, nameCold, nameBwrap)
	sec.against(nameStock+allSuffix, nameWarm+allSuffix, nameCold+allSuffix, nameBwrap+allSuffix)
	b.report.add(sec)
	sec = table("tti", "sandboxes created, used once and removed for one second of processor time", "", w.costs)
	sec.tails99(w.costs)
	sec.note("more is better, so the percentiles are of the better rounds; n rounds of %d at once. By the times of the server, of what it", b.crowd)
	sec.note("started and waited for, and of each sandbox's processes")
	b.report.add(sec)
	return nil
}

// runInTurns runs each function once per round, and begins each round with another one.
func runInTurns(rounds int, all []func() error) error {
	for round := range rounds {
		for i := range all {
			if err := all[(i+round)%len(all)](); err != nil {
				return err
			}
		}
	}
	return nil
}

// crowd calls a function many times at once and returns how often it succeeded.
func (w *ttiCrowdRun) crowd(name string, do func() error) (succeeded int) {
	took, failed := together(w.b.crowd, do)
	w.times.addTime(name+allSuffix, took)
	if len(failed) > 0 {
		w.failed = append(w.failed, fmt.Sprintf("%s: %d failed%s", name, len(failed), firstOf(failed)))
	}
	return w.b.crowd - len(failed)
}

// bare runs a program of the host many times at once.
func (w *ttiCrowdRun) bare(ctx context.Context, name string, argv []string) error {
	w.crowd(name, func() error {
		began := time.Now()
		err := hostCommand(ctx, nil, argv...)
		w.times.addTime(name, time.Since(began))
		return err
	})
	return ctx.Err()
}

// sandboxes creates, uses and removes many sandboxes at once.
func (w *ttiCrowdRun) sandboxes(ctx context.Context, name string, srv *server) error {
	m, err := newMeter(srv)
	if err != nil {
		return err
	}
	succeeded := w.crowd(name, func() error {
		began := time.Now()
		sb, err := srv.client.Create(ctx, crannog.Timeout(10*time.Minute))
		if err != nil {
			return err
		}
		_, err = execTimed(ctx, sb, "true")
		w.times.addTime(name, time.Since(began))
		return errors.Join(err, m.sandbox(sb.ID()), sb.Kill(ctx))
	})
	if err := srv.rest(ctx); err != nil {
		return err
	}
	spent, err := m.spent()
	if err != nil {
		return err
	}
	w.costs.add(name, float64(succeeded)/spent.Seconds())
	return nil
}
