package main

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

const (
	didFork       = "fork returns"
	didCost       = "processor time of each copy"
	untilLastCopy = "until the last copy has answered"
)

// forkOnce creates copies, waits for an answer of each, and removes them.
func forkOnce(ctx context.Context, source *crannog.Sandbox, count int, s *scores, answer func(*crannog.Sandbox) error) error {
	copies, err := createForks(ctx, source, count, s, answer)
	return errors.Join(err, killAll(ctx, copies))
}

// createForks creates copies and waits for their answers. With an error it still returns the
// existing copies.
func createForks(ctx context.Context, source *crannog.Sandbox, count int, s *scores, answer func(*crannog.Sandbox) error) ([]*crannog.Sandbox, error) {
	began := time.Now()
	copies, err := source.Fork(ctx, api.CreateFork{Count: count, TimeoutSeconds: 600})
	if err != nil {
		return copies, err
	}
	s.addTime(didFork, time.Since(began))
	_, err = inBatches(len(copies), pop(copies, func(sb *crannog.Sandbox) error {
		err := answer(sb)
		if err == nil && count == 1 {
			s.addTime(didFork+toAnswer, time.Since(began))
		}
		return err
	}))
	if err == nil && count > 1 {
		s.addTime(untilLastCopy, time.Since(began))
	}
	return copies, err
}

// killAll removes sandboxes.
func killAll(ctx context.Context, sandboxes []*crannog.Sandbox) error {
	_, err := inBatches(len(sandboxes), pop(sandboxes, func(sb *crannog.Sandbox) error { return sb.Kill(ctx) }))
	return err
}

// costRounds returns how often the cost of copies is measured. The server's time has a resolution
// of a hundredth of a second, so small numbers of copies are measured more often.
func (f flags) costRounds(count int) int { return max((20+count-1)/count, min(5, f.n)) }

// forkCosts scores the processor time of each copy, round by round.
func (b *bench) forkCosts(ctx context.Context, srv *server, source *crannog.Sandbox, count int, answer func(*crannog.Sandbox) error, s *scores) error {
	for range b.costRounds(count) {
		cost, err := forkCost(ctx, srv, source, count, answer)
		if err != nil {
			return err
		}
		s.addTime(didCost, cost/time.Duration(count))
	}
	return nil
}

// addCost adds notes about the row of forkCosts, and its target.
func (s *section) addCost(count int) {
	s.target(didCost, "≤ 60 ms", func(r row) bool { return r.P50 <= 60 })
	s.note("processor time: with the copy's share of saving the sandbox, to its first answer and without its removal; a value is the mean of %d made at once,", count)
	s.note("and the server's part of it is in steps of 10 ms for all of them")
}

// forkCost returns the processor time of all copies that are created at once.
func forkCost(ctx context.Context, srv *server, source *crannog.Sandbox, count int, answer func(*crannog.Sandbox) error) (time.Duration, error) {
	if err := srv.rest(ctx); err != nil {
		return 0, err
	}
	p, err := processesOf(srv.state, source.ID())
	if err != nil {
		return 0, err
	}
	processes := p.all()
	_, before := threadsAndTime(processes)
	m, err := newMeter(srv)
	if err != nil {
		return 0, err
	}
	copies, err := createForks(ctx, source, count, newScores(), answer)
	for _, sb := range copies {
		err = errors.Join(err, m.sandbox(sb.ID()))
	}
	spent, more := m.spent()
	_, after := threadsAndTime(processes)
	return spent + after - before, errors.Join(err, more, killAll(ctx, copies))
}

// numpyCode keeps numpy and an array in memory, and numpyAnswer needs both.
const (
	numpyCode   = "import numpy\narray = numpy.arange(10)\nprint(int(array.sum()) - 3)"
	numpyAnswer = "print(int(array.sum()) - 3)"
)

// numpyForks measures how soon a copy of a sandbox with numpy in memory is usable, compared with a
// new sandbox and a bare program.
func (b *bench) numpyForks(ctx context.Context, srv *server) error {
	if err := hostCommand(ctx, nil, b.python, "-c", "import numpy"); err != nil {
		sec := section{Group: "state", Title: "fork: a sandbox that holds numpy", Unit: "ms"}
		sec.note("not measured: %v", err)
		b.report.add(sec)
		return nil
	}
	source, err := srv.client.Create(ctx, crannog.Timeout(time.Hour))
	if err != nil {
		return err
	}
	if err := runCode(ctx, source, numpyCode); err != nil {
		return errors.Join(err, source.Kill(ctx))
	}
	const forkAnswer, newSandbox, bareStart = "fork to the first answer of numpy", "a new sandbox, to the same answer", "bare python3 that imports numpy"
	answer := func(sb *crannog.Sandbox) error { return runCode(ctx, sb, numpyAnswer) }
	s, err := race(ctx, b.n,
		contender{forkAnswer, func(ctx context.Context, s *scores) error {
			part := newScores()
			err := forkOnce(ctx, source, 1, part, answer)
			for _, v := range part.by[didFork] {
				s.add(didFork, v)
			}
			for _, v := range part.by[didFork+toAnswer] {
				s.add(forkAnswer, v)
			}
			return errors.Join(err, srv.rest(ctx))
		}},
		contender{newSandbox, func(ctx context.Context, s *scores) error {
			began := time.Now()
			sb, err := srv.client.Create(ctx, crannog.Timeout(time.Hour))
			if err != nil {
				return err
			}
			err = runCode(ctx, sb, numpyCode)
			s.addTime(newSandbox, time.Since(began))
			return errors.Join(err, sb.Kill(ctx), srv.rest(ctx))
		}},
		bare(bareStart, b.python, "-c", numpyCode))
	if err == nil {
		err = b.forkCosts(ctx, srv, source, 1, answer, s)
	}
	if err := errors.Join(err, source.Kill(ctx)); err != nil {
		return err
	}
	sec := table("state", "fork: one of a sandbox that holds numpy", "ms", s, didFork, forkAnswer, newSandbox, bareStart, didCost)
	sec.tails99(s)
	sec.against(newSandbox, didFork, forkAnswer, bareStart)
	sec.target(forkAnswer, "≤ 45 ms", func(r row) bool { return r.P50 <= 45 })
	sec.addCost(1)
	b.report.add(sec)
	return nil
}
