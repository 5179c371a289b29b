package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"time"

	"github.com/crannog/crannog"
)

// busyScript is a shell line with two processes that never wait.
const busyScript = "while :; do :; done & while :; do :; done"

// busyPause is the pause between two requests. Without it the server would be as busy as the
// sandboxes, and would compete with them as an equal.
const busyPause = 5 * time.Millisecond

// busyFigures measures how fast the server answers while sandboxes use every processor, in turns
// with idle sandboxes.
func busyFigures(ctx context.Context, b *bench) (err error) {
	srv, err := b.serve(ctx, b.crannog, "busy", "--pool", "off")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close()) }()
	quiet, err := srv.client.Create(ctx, crannog.Timeout(time.Hour))
	if err != nil {
		return err
	}
	crowd := make([]*crannog.Sandbox, 4*runtime.NumCPU())
	for i := range crowd {
		if crowd[i], err = srv.client.Create(ctx, crannog.Timeout(time.Hour)); err != nil {
			return err
		}
	}
	requests := []timedRequest{
		{"GET /v1/sandboxes", 40, 5, srv.list},
		{"exec true in an idle sandbox", 15, 10, trueIn(quiet)},
		{"exec true in a busy sandbox", 15, 0, trueIn(crowd[0])},
	}
	s, err := race(ctx, b.fewer(4), whileState(idleState, requests, nil), whileState(busyState, requests, crowd))
	if err != nil {
		return err
	}
	for _, q := range requests {
		b.report.add(q.section(s, len(crowd)))
	}
	return nil
}

// timedRequest is a request whose duration is measured.
type timedRequest struct {
	name      string
	times     int     // number of requests in each round
	maxFactor float64 // largest busy p99 as a multiple of the idle one; 0 means no target
	send      func(context.Context) error
}

// section compares the 99th percentiles of a request in both states.
func (q timedRequest) section(s *scores, sandboxes int) section {
	sec := table("busy", fmt.Sprintf("%s, while %d sandboxes with two endless loops each burn %d processors", q.name, sandboxes, runtime.NumCPU()),
		"ms", s, q.name+idleState, q.name+busyState)
	sec.tails99(s)
	sec.against(q.name + idleState)
	idle, busy := *s.by[q.name+idleState].p99(), *s.by[q.name+busyState].p99()
	if q.maxFactor > 0 {
		sec.target(q.name+busyState, fmt.Sprintf("p99 ≤ %.0f× of idle", q.maxFactor), func(row) bool { return busy <= q.maxFactor*idle })
	}
	sec.note("p99 busy over p99 idle: %.2f×", busy/idle)
	return sec
}

// States of the machine.
const (
	idleState = ", others idle"
	busyState = ", others busy"
)

// whileState returns a contender that makes each request while the given sandboxes are busy.
func whileState(state string, requests []timedRequest, crowd []*crannog.Sandbox) contender {
	return contender{state, func(ctx context.Context, s *scores) (err error) {
		stop, err := startBusyLoops(ctx, crowd)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		for _, q := range requests {
			for range q.times {
				time.Sleep(busyPause)
				began := time.Now()
				if err := q.send(ctx); err != nil {
					return fmt.Errorf("%s: %w", q.name, err)
				}
				s.addTime(q.name+state, time.Since(began))
			}
		}
		return nil
	}}
}

// startBusyLoops keeps sandboxes busy until stop is called.
func startBusyLoops(ctx context.Context, crowd []*crannog.Sandbox) (stop func() error, err error) {
	loops, end := context.WithCancel(ctx)
	var all []*crannog.Cmd
	stop = func() error {
		end()
		var errs []error
		for _, cmd := range all {
			if err := cmd.Wait(); !errors.Is(err, context.Canceled) {
				errs = append(errs, fmt.Errorf("an endless loop has ended: %w", err))
			}
		}
		return errors.Join(errs...)
	}
	for _, sb := range crowd {
		cmd := sb.CommandContext(loops, "sh", "-c", busyScript)
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, stop())
		}
		all = append(all, cmd)
	}
	return stop, nil
}

// trueIn returns a request that runs true in a sandbox.
func trueIn(sb *crannog.Sandbox) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := execTimed(ctx, sb, "true")
		return err
	}
}

// list requests the list of all sandboxes over an open connection.
func (s *server) list(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/sandboxes", nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", s.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("list: %s: %w", resp.Status, err)
	}
	return nil
}
