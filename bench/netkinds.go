package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
)

// defaultKind is the path of sandboxes with the default kind of attachment.
const defaultKind = "packets, in a sandbox"

// kinds returns paths through the gateway, each with another kind of attachment. Those without a
// sandbox run on the host's kernel.
func (r *netRig) kinds(ctx context.Context) ([]netTarget, error) {
	all := []netTarget{{name: pathDirect, host: hostSplice}, {name: defaultKind, host: hostSplice, sandbox: r.gatewaySandbox}}
	for _, k := range []struct {
		name string
		form attachmenttest.Form
		mtu  int
	}{
		{"tap: TUN device", attachmenttest.TUN, 0},
		{"tap: TUN device, MTU 1500", attachmenttest.TUN, 1500},
		{"ethernet: TAP device", attachmenttest.TAP, 0},
		{"ethernet: stream", attachmenttest.Stream, 0},
		{"ethernet: stream, MTU 1500", attachmenttest.Stream, 1500},
		{"ethernet: datagrams", attachmenttest.Datagrams, 0},
	} {
		sb, err := r.kernelPeer(ctx, k.form, k.mtu)
		if err != nil {
			return nil, err
		}
		all = append(all, netTarget{name: k.name, host: hostSplice, kernel: sb})
	}
	socket, err := r.socketPeer(ctx)
	return append(all, netTarget{name: "proxy: socket", host: hostSplice, kernel: socket}), err
}

// netKindFigures compares the kinds of attachments without decryption, because the layers above are
// the same for all.
func netKindFigures(ctx context.Context, b *bench) (err error) {
	r, err := b.netRig(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	kinds, err := r.kinds(ctx)
	if err != nil {
		return err
	}
	perSecond := func(d time.Duration) float64 { return 1 / d.Seconds() }
	for _, m := range []struct {
		title, unit string
		job         netJob
		n           int
		value       func(time.Duration) float64
	}{
		{"small answers over TLS on a kept-alive connection", "requests/s", netJob{Kind: jobKept, N: 200}, b.n, perSecond},
		{"new connections, TLS and a small answer", "requests/s", netJob{Kind: jobNew, N: 30}, b.n, perSecond},
		{fmt.Sprintf("download of %d MiB over TLS", netDownload>>20), "MB/s", netJob{Kind: jobDownload, N: 1, Bytes: netDownload}, b.n, func(d time.Duration) float64 { return rate(netDownload, d) }},
		{fmt.Sprintf("upload of %d MiB over TLS", netUpload>>20), "MB/s", netJob{Kind: jobUpload, N: 1, Bytes: netUpload}, b.n, func(d time.Duration) float64 { return rate(netUpload, d) }},
	} {
		var all []contender
		var names []string
		for _, k := range kinds {
			all, names = append(all, r.score(k, m.job, m.value)), append(names, k.name)
		}
		s, err := race(ctx, m.n, all...)
		if err != nil {
			return err
		}
		sec := table("netkinds", m.title, m.unit, s, names...)
		sec.against(defaultKind, names...)
		defaultTime := s.by[processor+defaultKind]
		for _, name := range names {
			if v := s.by[processor+name]; len(v) > 0 {
				sec.note("%s: %s µs of processor time of the gateway's process each, %.2f× that of %s", name, number(v.p50()), v.p50()/defaultTime.p50(), defaultKind)
			}
		}
		b.report.add(sec)
	}
	return nil
}
