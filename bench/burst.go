package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/crannog/crannog"
)

// busyLoops is the number of processes that keep the processors busy during a burst, in the second
// part of the group.
const busyLoops = 4

// burstFigures measures many requests at the same moment: how many succeed, when the first and the
// last sandbox is ready, and how the total compares with the same work one after the other. It
// measures on an idle machine, beside busy processes, and with a quarter of the processors taken
// away.
func burstFigures(ctx context.Context, b *bench) (err error) {
	warm, err := b.serve(ctx, b.crannog, "burst-warm", "--max-live", "1000")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, warm.close()) }()
	cold, err := b.serve(ctx, b.crannog, "burst-cold", "--max-live", "1000", "--pool", "off")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cold.close()) }()
	if err := os.MkdirAll(filepath.Join(b.dir, "stock"), 0o700); err != nil {
		return err
	}
	if err := b.burstRounds(ctx, "an idle machine", warm, cold); err != nil {
		return err
	}
	stop, err := busyLoopsBeside(ctx, busyLoops)
	if err != nil {
		return err
	}
	if err := errors.Join(b.burstRounds(ctx, fmt.Sprintf("beside %d busy loops", busyLoops), warm, cold), stop()); err != nil {
		return err
	}
	if stop, err = throttleProcessors(ctx); err != nil {
		return err
	}
	return errors.Join(b.burstRounds(ctx, fmt.Sprintf("%.0f %% of each processor taken away", 100*throttleShare), warm, cold), stop())
}

// busyLoopsBeside starts processes, each of which keeps a processor busy.
func busyLoopsBeside(ctx context.Context, n int) (stop func() error, err error) {
	var all []*exec.Cmd
	stop = func() error {
		var errs []error
		for _, cmd := range all {
			if err := cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
				errs = append(errs, err)
			}
			_ = cmd.Wait() // always reports the kill
		}
		return errors.Join(errs...)
	}
	for range n {
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, stop())
		}
		all = append(all, cmd)
	}
	return stop, nil
}

// burstKind is a kind of sandbox in a burst.
type burstKind struct {
	name string
	// life creates a sandbox, runs `true` in it and removes it. It calls ready when `true` has
	// ended.
	life func(ctx context.Context, ready func()) error
}

// burstKinds returns the kinds that this host can run.
func (b *bench) burstKinds(warm, cold *server) []burstKind {
	var kinds []burstKind
	addHost := func(name string, argv []string) {
		kinds = append(kinds, burstKind{name, func(ctx context.Context, ready func()) error {
			defer ready()
			return hostCommand(ctx, nil, argv...)
		}})
	}
	if found("bwrap") {
		addHost(nameBwrap, bubblewrap("/bin/true"))
	}
	if found(b.runsc) {
		addHost(nameStock, b.stockDo("/bin/true"))
	}
	addSandbox := func(name string, srv *server) {
		kinds = append(kinds, burstKind{name, func(ctx context.Context, ready func()) error {
			sb, err := srv.client.Create(ctx, crannog.Timeout(time.Hour))
			if err != nil {
				return err
			}
			_, err = execTimed(ctx, sb, "true")
			ready()
			return errors.Join(err, sb.Kill(ctx))
		}})
	}
	addSandbox(nameWarm, warm)
	addSandbox(nameCold, cold)
	return kinds
}

// burstRounds measures the kinds in turns, each round first one after the other and then all at
// once.
func (b *bench) burstRounds(ctx context.Context, where string, warm, cold *server) error {
	kinds := b.burstKinds(warm, cold)
	s, succeeded, failures := newScores(), map[string]int{}, []string{}
	for round := range b.crowdRounds() {
		for i := range kinds {
			w := kinds[(i+round)%len(kinds)]
			if err := b.burstLone(ctx, w, s); err != nil {
				return fmt.Errorf("%s, one after the other: %w", w.name, err)
			}
			n, failed := b.burstAll(ctx, w, s)
			succeeded[w.name] += n
			if failed != "" {
				failures = append(failures, failed)
			}
			if err := errors.Join(ctx.Err(), warm.rest(ctx), cold.rest(ctx)); err != nil {
				return err
			}
		}
	}
	sec := table("burst", fmt.Sprintf("%d sandboxes at the same moment, each created, used once and removed; %s", b.crowd, where), "ms", s)
	sec.tails99(s)
	sec.against(nameStock+burstWhole, nameBwrap+burstWhole, nameWarm+burstWhole, nameCold+burstWhole)
	for _, w := range kinds {
		sec.note("%s: %d of %d succeeded", w.name, succeeded[w.name], b.crowd*b.crowdRounds())
		sec.burstNote(w.name, s, b.crowd)
	}
	sec.Notes = append(sec.Notes, failures...)
	b.report.add(sec)
	return nil
}

// Names of the figures of a burst.
const (
	burstLoneReady = ": alone, ready"
	burstLone      = ": alone, whole life"
	burstFirst     = ": first of the burst ready"
	burstWhole     = ": whole burst"
)

// burstNote compares the burst with the same work done one after the other.
func (s *section) burstNote(name string, from *scores, crowd int) {
	lone, ready := from.by[name+burstLone], from.by[name+burstLoneReady]
	first, whole := from.by[name+burstFirst], from.by[name+burstWhole]
	if len(lone) == 0 || len(whole) == 0 || lone.p50() == 0 || ready.p50() == 0 {
		return
	}
	cores := runtime.NumCPU()
	inTurn := lone.p50() * float64(crowd) / float64(cores)
	s.note("%s: the burst took %.2f× of one after the other on %d processors; its first was ready after %.2f× of one alone", name, whole.p50()/inTurn, cores, first.p50()/ready.p50())
}

// singleRuns is the number of sandboxes that are used one after the other in each round.
const singleRuns = 5

// burstLone uses sandboxes one after the other.
func (b *bench) burstLone(ctx context.Context, w burstKind, s *scores) error {
	for range singleRuns {
		began := time.Now()
		err := w.life(ctx, func() { s.addTime(w.name+burstLoneReady, time.Since(began)) })
		if err != nil {
			return err
		}
		s.addTime(w.name+burstLone, time.Since(began))
	}
	return nil
}

// burstAll uses all sandboxes at once, and returns the number of successes and the errors.
func (b *bench) burstAll(ctx context.Context, w burstKind, s *scores) (succeeded int, failed string) {
	ready := make(chan time.Time, b.crowd)
	began := time.Now()
	took, errs := together(b.crowd, func() error {
		return w.life(ctx, func() { ready <- time.Now() })
	})
	s.addTime(w.name+burstWhole, took)
	if len(ready) > 0 {
		s.addTime(w.name+burstFirst, (<-ready).Sub(began))
	}
	if len(errs) > 0 {
		failed = fmt.Sprintf("%s: %d failed%s", w.name, len(errs), firstOf(errs))
	}
	return b.crowd - len(errs), failed
}
