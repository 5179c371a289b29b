package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/crannog/crannog"
)

// crowdFigures measures many sandboxes that are requested at the same moment.
func crowdFigures(ctx context.Context, b *bench) (err error) {
	srv, err := b.serve(ctx, b.crannog, "crowd")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close()) }()
	s := newScores()
	took, failed := together(b.crowd, func() error { return crowdLife(ctx, srv.client, s) })
	sec := table("crowd", fmt.Sprintf("%d sandboxes at once through crannog serve, each create, exec of `true`, remove", b.crowd), "ms", s,
		"create", "exec", "remove")
	sec.note("all %d in %.1f s, %.1f per second, %d failed%s", b.crowd, took.Seconds(), float64(b.crowd)/took.Seconds(), len(failed), firstOf(failed))
	if found(b.runsc) {
		if err := os.MkdirAll(filepath.Join(b.dir, "stock"), 0o700); err != nil {
			return err
		}
		stock, failed := together(b.crowd, func() error { return hostCommand(ctx, nil, b.stockDo("/bin/true")...) })
		sec.note("%d × stock runsc do true at once: %.1f s, %.1f per second, %d failed%s; ours took %.2f× as long",
			b.crowd, stock.Seconds(), float64(b.crowd)/stock.Seconds(), len(failed), firstOf(failed), took.Seconds()/stock.Seconds())
	}
	b.report.add(sec)
	return nil
}

// together runs a function n times at once and returns how long all calls took, and their errors.
func together(n int, do func() error) (time.Duration, []error) {
	var (
		mu     sync.Mutex
		failed []error
		group  sync.WaitGroup
		start  = make(chan struct{})
	)
	for range n {
		group.Go(func() {
			<-start
			if err := do(); err != nil {
				mu.Lock()
				failed = append(failed, err)
				mu.Unlock()
			}
		})
	}
	began := time.Now()
	close(start)
	group.Wait()
	return time.Since(began), failed
}

// firstOf formats the first of some errors.
func firstOf(errs []error) string {
	if len(errs) == 0 {
		return ""
	}
	return fmt.Sprintf(" (the first: %v)", errs[0])
}

// crowdLife creates, uses and removes one sandbox of the crowd.
func crowdLife(ctx context.Context, client *crannog.Client, s *scores) error {
	began := time.Now()
	sb, err := client.Create(ctx, crannog.Timeout(10*time.Minute))
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	s.addTime("create", time.Since(began))
	began = time.Now()
	if _, err := execTimed(ctx, sb, "true"); err != nil {
		return errors.Join(err, sb.Kill(ctx))
	}
	s.addTime("exec", time.Since(began))
	began = time.Now()
	if err := sb.Kill(ctx); err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	s.addTime("remove", time.Since(began))
	return nil
}
