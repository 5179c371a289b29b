package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Names of the network paths to the server.
const (
	pathDirect    = "direct, on the host"
	pathProxy     = "plain CONNECT proxy, on the host"
	pathPass      = "sandbox, link that passes all"
	pathSplice    = "sandbox, egress gateway, unopened"
	pathDecrypted = "sandbox, egress gateway, opened"
	pathSecret    = "sandbox, gateway, decrypted, secret set and redacted"
)

// netTarget is a network path and its destination.
type netTarget struct {
	name, host string
	sandbox    *engineSandbox // nil for the host
	proxy      string
	// kernel runs the client on the host's kernel, instead of in a sandbox.
	kernel *kernelPeer
}

// paths returns the network paths that are compared.
func (r *netRig) paths() []netTarget {
	return []netTarget{
		{name: pathDirect, host: hostOpen},
		{name: pathProxy, host: hostOpen, proxy: r.proxy},
		{name: pathPass, host: hostOpen, sandbox: r.passSandbox},
		{name: pathSplice, host: hostSplice, sandbox: r.gatewaySandbox},
		{name: pathDecrypted, host: hostOpen, sandbox: r.gatewaySandbox},
		{name: pathSecret, host: hostSecret, sandbox: r.gatewaySandbox},
	}
}

// score returns a contender that runs a job on a path. It adds value's result for each duration,
// and the processor time of the gateway's process.
func (r *netRig) score(t netTarget, j netJob, value func(time.Duration) float64) contender {
	j.Host, j.Port, j.Roots, j.Proxy = t.host, 443, r.roots, t.proxy
	return contender{t.name, func(ctx context.Context, s *scores) error {
		do := r.onHost
		switch {
		case t.kernel != nil:
			do = t.kernel.run
		case t.sandbox != nil:
			do = t.sandbox.run
		default:
			j.Dial = r.upstream.address
		}
		before, err := processorTime(r.client.Info().PID)
		if err != nil {
			return err
		}
		took, err := do(ctx, j)
		if err != nil {
			return err
		}
		after, err := processorTime(r.client.Info().PID)
		if err != nil {
			return err
		}
		for _, d := range took {
			s.add(t.name, value(d))
		}
		if t.kernel != nil || t.sandbox == r.gatewaySandbox {
			s.add(processor+t.name, micros(after-before)/float64(len(took)))
		}
		return nil
	}}
}

// processor is the prefix of a path's score of processor time.
const processor = "processor time: "

// processorTime returns the processor time of a process from its clock.
func processorTime(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("processor time of %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// netFigures measures small requests over TLS: on an open connection, and with a new one for each.
func netFigures(ctx context.Context, b *bench) (err error) {
	r, err := b.netRig(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	const perRound = 60
	for _, h2 := range []bool{false, true} {
		var all []contender
		for _, t := range r.paths() {
			all = append(all, r.score(t, netJob{Kind: jobKept, H2: h2, N: perRound}, micros))
		}
		s, err := race(ctx, b.n, all...)
		if err != nil {
			return err
		}
		sec := netTable("net", r, s, "a small answer over TLS on a kept-alive connection, "+protocol(h2), "µs")
		sec.within(pathDirect, pathPass, 250, 1000, pathSplice, pathDecrypted, pathSecret)
		b.report.add(sec)
	}
	var all []contender
	for _, t := range r.paths() {
		all = append(all, r.score(t, netJob{Kind: jobNew, N: perRound / 4}, micros))
	}
	const lookup = "look-up of a name, in the sandbox"
	all = append(all, r.score(netTarget{name: lookup, host: hostOpen, sandbox: r.gatewaySandbox}, netJob{Kind: jobLookup, N: perRound / 4}, micros))
	s, err := race(ctx, b.n, all...)
	if err != nil {
		return err
	}
	sec := netTable("net", r, s, "a new connection, TLS and a small answer", "µs", lookup)
	sec.within(pathDirect, pathPass, 3000, 0, pathSplice, pathDecrypted, pathSecret)
	b.report.add(sec)
	return nil
}

func protocol(h2 bool) string {
	if h2 {
		return "HTTP/2"
	}
	return "HTTP/1.1"
}

// netTable returns a table of all paths and some other rows.
func netTable(group string, r *netRig, s *scores, title, unit string, more ...string) section {
	var names []string
	for _, t := range r.paths() {
		names = append(names, t.name)
	}
	sec := table(group, title, unit, s, append(names, more...)...)
	sec.against(pathDirect, names...)
	for _, name := range names {
		if v := s.by[processor+name]; len(v) > 0 {
			sec.note("%s: %s ms of processor time of the gateway's process each", name, number(v.p50()/1000))
		}
	}
	return sec
}

// within sets targets for rows: the median may be above the baseline's by near, in the table's
// unit. If far is not zero, the 99th percentile may be twice the baseline's plus far. Notes show
// how far the rows are above a sandbox whose network passes everything, which is the cost of the
// gateway.
func (s *section) within(baseline, sandboxed string, near, far float64, rows ...string) {
	base, sb := s.find(baseline), s.find(sandboxed)
	if base == nil || sb == nil {
		return
	}
	for _, name := range rows {
		r := s.find(name)
		if r == nil {
			continue
		}
		s.target(name, fmt.Sprintf("p50 ≤ + %s %s", number(near), s.Unit), func(r row) bool { return r.P50 <= base.P50+near })
		text := fmt.Sprintf("%s: p50 %+.0f %s against %s, %+.0f against %s", name, r.P50-base.P50, s.Unit, baseline, r.P50-sb.P50, sandboxed)
		if far > 0 && base.P99 != nil && r.P99 != nil {
			limit := 2*(*base.P99) + far
			word := "missed"
			if *r.P99 <= limit {
				word = "reached"
			}
			text += fmt.Sprintf("; p99 ≤ 2× + %s, which is %s: %s", number(far), number(limit), word)
		}
		s.note("%s", text)
	}
}
