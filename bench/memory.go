package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/host/memtrim"
)

// crowdSizes are the numbers of idle sandboxes for which memory is measured. The numbers matter
// because sandboxes share memory.
var crowdSizes = []int{1, 10, 20}

// guests returns the binaries with the two kinds of guests.
func (b *bench) guests() []struct{ name, binary string } {
	all := []struct{ name, binary string }{{"small guest, embedded", b.crannog}}
	if found(b.own) {
		all = append(all, struct{ name, binary string }{"own binary as guest", b.own})
	}
	return all
}

// memoryFigures compares both guests in their start times and memory.
func memoryFigures(ctx context.Context, b *bench) (err error) {
	var starts []contender
	for i, g := range b.guests() {
		srv, err := b.serve(ctx, g.binary, fmt.Sprintf("memory-%d", i))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, srv.close()) }()
		starts = append(starts, stepsOf(g.name, srv.client))
		if err := b.idleMemory(ctx, g.name, srv, 40); err != nil {
			return err
		}
	}
	s, err := race(ctx, b.n, starts...)
	if err != nil {
		return err
	}
	sec := table("memory", "calls with each guest", "ms", s)
	for _, step := range []string{" create", " exec", " again", " remove"} {
		sec.against(b.guests()[0].name+step, "own binary as guest"+step)
	}
	b.report.add(sec)
	return nil
}

// idleMemory measures the memory of growing numbers of idle sandboxes. The target is in MB.
func (b *bench) idleMemory(ctx context.Context, kind string, srv *server, target float64, opts ...crannog.CreateOption) error {
	s := newScores()
	var ids []string
	var alive []*crannog.Sandbox
	var sec section
	for _, size := range crowdSizes {
		for len(ids) < size {
			sb, err := srv.client.Create(ctx, append(opts, crannog.Timeout(10*time.Minute))...)
			if err != nil {
				return err
			}
			ids, alive = append(ids, sb.ID()), append(alive, sb)
		}
		if err := settled(ctx, srv, ids); err != nil {
			return err
		}
		if err := s.addSandboxes(srv, ids); err != nil {
			return err
		}
	}
	sec = table("memory", "of one idle sandbox, "+kind, "MB", s)
	for _, size := range crowdSizes {
		sec.target(atSize("PSS", size), fmt.Sprintf("≤ %g MB", target), func(r row) bool { return r.P50 <= target })
	}
	sec.note("PSS: sum over the sandbox's kernel, file server and stubs of Pss in /proc/PID/smaps_rollup, MB of a million bytes;")
	sec.note("what sandboxes and server map together is shared out among them. charged: memory of the sandbox's control group,")
	sec.note("with cached file pages. Pages of program files are the binary's and the guest's: the kernel can drop and read them again. Taken when the sum stayed within 1 %% for three seconds.")
	b.report.add(sec)
	for _, sb := range alive {
		if err := sb.Kill(ctx); err != nil {
			return err
		}
	}
	return nil
}

// atSize returns the name of a row.
func atSize(what string, size int) string { return fmt.Sprintf("%s, %d at once", what, size) }

// addSandboxes adds the memory of each sandbox.
func (s *scores) addSandboxes(srv *server, ids []string) error {
	const mb = 1e6
	for _, id := range ids {
		p, err := processesOf(srv.state, id)
		if err != nil {
			return err
		}
		var total memory
		for _, part := range []struct {
			name string
			pids []int
		}{{"kernel", []int{p.sentry}}, {"file server", []int{p.gofer}}, {"stubs", p.stubs}} {
			if part.name == "file server" && p.gofer == 0 {
				continue
			}
			sum, err := pssOf(part.pids...)
			if err != nil {
				return err
			}
			s.add(atSize(" of it in the "+part.name, len(ids)), float64(sum.all)/mb)
			total.add(sum)
		}
		s.add(atSize("PSS", len(ids)), float64(total.all)/mb)
		s.add(atSize(" of it pages of program files", len(ids)), float64(total.file)/mb)
		if n, ok := charged(p.sentry); ok {
			s.add(atSize("charged", len(ids)), float64(n)/mb)
		}
	}
	return nil
}

// settleTime is how long a sandbox's memory must stay the same for the sandbox to count as idle.
// Two seconds after its start, a sandbox releases memory that only the start needed, and once more
// when it has done nothing for memtrim.After.
const settleTime = 3 * time.Second

// settled waits until the last sandbox counts as idle and the memory of all is stable, but at most
// half a minute.
func settled(ctx context.Context, srv *server, ids []string) error {
	deadline := time.After(30 * time.Second)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(memtrim.After):
	}
	for last := int64(0); ; {
		var sum int64
		for _, id := range ids {
			p, err := processesOf(srv.state, id)
			if err != nil {
				return err
			}
			one, err := pssOf(p.all()...)
			if err != nil {
				return err
			}
			sum += one.all
		}
		if diff := sum - last; last > 0 && max(diff, -diff) < sum/100 {
			return nil
		}
		last = sum
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return nil
		case <-time.After(settleTime):
		}
	}
}
