package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// dirtySizes are amounts of memory that a program in the sandbox has written.
var dirtySizes = []struct {
	name      string
	bytes     int64
	maxCopies int // at once
}{
	{"10 MB", 10e6, 100},
	{"100 MB", 100e6, 10},
	{"1 GB", 1e9, 1},
}

// stateLimits are enough for the largest size and an interpreter.
var stateLimits = api.Limits{MemoryBytes: 2 << 30}

// stateFigures measures saving, copying and restoring sandboxes. Between the steps the server has
// time to prestart kernels, as it has between requests of users.
func stateFigures(ctx context.Context, b *bench) (err error) {
	srv, err := b.serve(ctx, b.crannog, "state", "--max-live", "1000")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close()) }()
	if b.earlier != "" {
		return b.stateAgainst(ctx, srv)
	}
	for _, size := range dirtySizes {
		if err := b.stateAt(ctx, srv, size.name, size.bytes, b.stateRounds(size.bytes)); err != nil {
			return fmt.Errorf("%s: %w", size.name, err)
		}
		for _, count := range []int{1, 10, 100} {
			if count <= size.maxCopies {
				if err := b.forks(ctx, srv, size.name, size.bytes, count); err != nil {
					return fmt.Errorf("%s, %d copies: %w", size.name, count, err)
				}
			}
		}
	}
	if err := b.numpyForks(ctx, srv); err != nil {
		return err
	}
	return b.stateMemory(ctx, srv)
}

// stateRounds is how many rounds a size gets: the largest one takes seconds.
func (b *bench) stateRounds(bytes int64) int {
	if bytes > 100e6 {
		return b.fewer(5)
	}
	return b.n
}

// dirtySandbox creates a sandbox whose interpreter has written the given number of bytes. All pages
// differ.
func dirtySandbox(ctx context.Context, srv *server, bytes int64) (*crannog.Sandbox, error) {
	sb, err := srv.client.Create(ctx, crannog.Timeout(time.Hour), crannog.Limits(stateLimits))
	if err != nil {
		return nil, err
	}
	code := fmt.Sprintf("import os\nheld = [os.urandom(1 << 20) for _ in range(%d)]\nprint(42)", bytes>>20)
	if err := runCode(ctx, sb, code); err != nil {
		return nil, errors.Join(err, sb.Kill(ctx))
	}
	return sb, nil
}

// checkMemory checks that the interpreter still has its memory.
func checkMemory(ctx context.Context, sb *crannog.Sandbox, bytes int64) error {
	return runCode(ctx, sb, fmt.Sprintf("print(42 if len(held) == %d else 0)", bytes>>20))
}

const (
	didSnapshot = "snapshot, the sandbox keeps running"
	didRollback = "rollback"
	didPause    = "pause"
	didResume   = "resume"
	toAnswer    = " to the first answer of Python"
)

// stateAt measures the steps one after the other with one sandbox.
func (b *bench) stateAt(ctx context.Context, srv *server, name string, bytes int64, rounds int) error {
	sb, err := dirtySandbox(ctx, srv, bytes)
	if err != nil {
		return err
	}
	s, err := race(ctx, rounds, contender{name, func(ctx context.Context, s *scores) error {
		return stateRound(ctx, srv, sb, bytes, func(step string, took time.Duration) { s.addTime(step, took) })
	}})
	if err := errors.Join(err, sb.Kill(ctx)); err != nil {
		return err
	}
	sec := table("state", "a sandbox whose Python holds "+name, "ms", s)
	sec.tails99(s)
	if name == dirtySizes[0].name {
		for what, limit := range map[string]float64{didSnapshot: 30, didRollback: 70, didPause: 60, didResume: 50} {
			sec.target(what, fmt.Sprintf("≤ %.0f ms", limit), func(r row) bool { return r.P50 <= limit })
		}
	}
	b.report.add(sec)
	return nil
}

// stateRound saves and restores a sandbox in all ways, and reports how long each took.
func stateRound(ctx context.Context, srv *server, sb *crannog.Sandbox, bytes int64, report func(step string, took time.Duration)) error {
	began := time.Now()
	snap, err := sb.Snapshot(ctx, api.CreateSnapshot{})
	if err != nil {
		return err
	}
	report(didSnapshot, time.Since(began))
	for _, step := range []struct {
		name   string
		do     func() error
		answer bool
	}{
		{didRollback, func() error { return sb.Rollback(ctx, snap.ID) }, true},
		{didPause, func() error { return sb.Pause(ctx) }, false},
		{didResume, func() error { return sb.Resume(ctx, time.Hour) }, true},
	} {
		if err := srv.rest(ctx); err != nil {
			return err
		}
		began = time.Now()
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		report(step.name, time.Since(began))
		if !step.answer {
			continue
		}
		if err := checkMemory(ctx, sb, bytes); err != nil {
			return fmt.Errorf("after %s: %w", step.name, err)
		}
		report(step.name+toAnswer, time.Since(began))
	}
	return srv.client.RemoveSnapshot(ctx, snap.ID)
}

// forks measures the creation of the given number of copies at once.
func (b *bench) forks(ctx context.Context, srv *server, name string, bytes int64, count int) error {
	source, err := dirtySandbox(ctx, srv, bytes)
	if err != nil {
		return err
	}
	rounds := b.n
	if bytes*int64(count) > 100e6 {
		rounds = b.fewer(5)
	}
	answer := func(sb *crannog.Sandbox) error { return checkMemory(ctx, sb, bytes) }
	s, err := race(ctx, rounds, contender{name, func(ctx context.Context, s *scores) error {
		return errors.Join(forkOnce(ctx, source, count, s, answer), srv.rest(ctx))
	}})
	if err == nil {
		err = b.forkCosts(ctx, srv, source, count, answer, s)
	}
	if err := errors.Join(err, source.Kill(ctx)); err != nil {
		return err
	}
	sec := table("state", fmt.Sprintf("fork: %d of a sandbox whose Python holds %s", count, name), "ms", s)
	sec.tails99(s)
	if count == 100 {
		sec.target(didFork, "≤ 4000 ms", func(r row) bool { return r.P50 <= 4000 })
	}
	sec.addCost(count)
	b.report.add(sec)
	return nil
}
