package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
)

const (
	netDownload = 64 << 20
	netUpload   = 32 << 20
)

// netByteFigures measures the throughput of downloads and uploads.
func netByteFigures(ctx context.Context, b *bench) (err error) {
	r, err := b.netRig(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for _, transfer := range []struct {
		kind jobKind
		size int64
		h2   bool
	}{{jobDownload, netDownload, false}, {jobDownload, netDownload, true}, {jobUpload, netUpload, false}} {
		var all []contender
		for _, t := range r.paths() {
			job := netJob{Kind: transfer.kind, H2: transfer.h2, N: 1, Bytes: transfer.size}
			all = append(all, r.score(t, job, func(d time.Duration) float64 { return rate(transfer.size, d) }))
		}
		s, err := race(ctx, b.fewer(4), all...)
		if err != nil {
			return err
		}
		sec := netTable("netbytes", r, s, fmt.Sprintf("%s of %d MiB over TLS, %s", transfer.kind, transfer.size>>20, protocol(transfer.h2)), "MB/s")
		if transfer.kind == jobDownload && !transfer.h2 {
			sec.target(pathSplice, "≥ 400 MB/s", func(r row) bool { return r.P50 >= 400 })
			sec.target(pathSecret, "≥ 150 MB/s", func(r row) bool { return r.P50 >= 150 })
		}
		b.report.add(sec)
	}
	return nil
}

// netRuleFigures compares hosts with few and with many rules, in the same sandbox and with the same
// answers.
func netRuleFigures(ctx context.Context, b *bench) (err error) {
	r, err := b.netRig(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	targets := []netTarget{{name: "10 rules", host: hostTen, sandbox: r.gatewaySandbox}, {name: "1,000 rules", host: hostThousand, sandbox: r.gatewaySandbox}}
	var all []contender
	for _, t := range targets {
		all = append(all, r.score(t, netJob{Kind: jobKept, N: 60}, micros))
	}
	s, err := race(ctx, b.n, all...)
	if err != nil {
		return err
	}
	sec := table("netrules", "a small answer on a kept-alive connection, by the rules of its host", "µs", s, targets[0].name, targets[1].name)
	sec.against(targets[0].name)
	b.report.add(sec)
	return b.decisions(ctx)
}

// decisions measures the policy's decision about a request.
func (b *bench) decisions(ctx context.Context) error {
	d, err := policy.Parse([]byte(netPolicy(manyRules)))
	if err != nil {
		return err
	}
	p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: d})
	if err != nil {
		return err
	}
	const many = 1000
	decide := func(name, host string) contender {
		return contender{name, func(_ context.Context, s *scores) error {
			q := policy.Request{Host: host, Port: 443, Method: "GET", Path: "/answer", TLS: true}
			began := time.Now()
			for range many {
				if got, _ := p.Request(q); got.Effect != "allow" {
					return errors.New(got.Reason)
				}
			}
			s.add(name, micros(time.Since(began))/many)
			return nil
		}}
	}
	s, err := race(ctx, b.n, decide("10 rules", hostTen), decide("1,000 rules", hostThousand))
	if err != nil {
		return err
	}
	sec := table("netrules", "the policy's decision on that request, without the rest", "µs", s)
	sec.against("10 rules")
	b.report.add(sec)
	return nil
}
