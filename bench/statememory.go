package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/crannog/crannog"
)

// stateMemory measures what boxes hold in each of their states.
func (b *bench) stateMemory(ctx context.Context, srv *server) error {
	const boxes = 10
	all, err := inBatches(boxes, func() (*crannog.Sandbox, error) {
		return srv.client.Create(ctx, crannog.Timeout(time.Hour))
	})
	if err == nil {
		err = b.memoryByState(ctx, srv, all)
	}
	return errors.Join(err, killAll(ctx, all))
}

func (b *bench) memoryByState(ctx context.Context, srv *server, all []*crannog.Sandbox) error {
	var ids []string
	for _, sb := range all {
		ids = append(ids, sb.ID())
	}
	each := func(do func(*crannog.Sandbox) error) error {
		_, err := inBatches(len(all), pop(all, do))
		return err
	}
	s := newScores()
	for _, step := range []struct {
		name string
		do   func(*crannog.Sandbox) error
	}{
		{"idle", nil},
		{"holding Python", func(sb *crannog.Sandbox) error { return runCode(ctx, sb, "print(42)") }},
		{"holding Python and numpy", func(sb *crannog.Sandbox) error { return runCode(ctx, sb, numpyCode) }},
		{"paused", func(sb *crannog.Sandbox) error { return sb.Pause(ctx) }},
		{"resumed", func(sb *crannog.Sandbox) error { return sb.Resume(ctx, time.Hour) }},
	} {
		if step.do != nil {
			if err := each(step.do); err != nil {
				return err
			}
		}
		if step.name == "paused" {
			for _, id := range ids {
				sum, err := pssNamed(id)
				if err != nil {
					return err
				}
				s.add(step.name, float64(sum.all)/1e6)
			}
			continue
		}
		// Memory goes back ten seconds after a busy time.
		if err := settledMemory(ctx); err != nil {
			return err
		}
		if err := settled(ctx, srv, ids); err != nil {
			return err
		}
		for _, id := range ids {
			p, err := processesOf(srv.state, id)
			if err != nil {
				return err
			}
			sum, err := pssOf(append(p.stubs, p.sentry, p.gofer)...)
			if err != nil {
				return err
			}
			s.add(step.name, float64(sum.all)/1e6)
			s.add(step.name+", without pages of program files", float64(sum.all-sum.file)/1e6)
		}
	}
	sec := table("state", "PSS of each of ten boxes", "MB", s)
	sec.target("idle, without pages of program files", "≤ 20 MB", func(r row) bool { return r.P50 <= 20 })
	sec.target("paused", "0", func(r row) bool { return r.P95 == 0 })
	sec.note("a box that is paused is looked for by its name in the arguments of every process of the host")
	b.report.add(sec)
	return nil
}

// pssNamed sums up the processes with a box's name in their arguments.
func pssNamed(id string) (memory, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return memory{}, err
	}
	var pids []int
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(data, []byte(id)) {
			continue // it has ended, or is another's
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return memory{}, err
		}
		pids = append(pids, pid)
	}
	return pssOf(pids...)
}
