package proxy

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// awaitRecords returns the entries once there are so many.
func (b *testSandbox) awaitRecords(n int) []egress.Record {
	b.t.Helper()
	for end := hosttest.Deadline(); ; time.Sleep(time.Millisecond) {
		if list := b.records.all(); len(list) >= n || time.Now().After(end) {
			return list
		}
	}
}

// The first process's probes before the sandbox is ready are marked, once each, and reach no host,
// and nothing else is marked.
func TestProbesAreMarked(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	b := w.newSandbox("level: light\nnetwork: {unlisted: deny, hosts: [{host: api.good.test, rules: [{paths: [/**], do: allow}]}]}\n")
	address := func() netip.Addr {
		t.Helper()
		a, err := b.resolve("api.good.test")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	// goes makes all probes, and waits for their entries.
	goes := func() []egress.Record {
		t.Helper()
		before := len(b.records.all())
		b.Dropped("udp", netip.MustParseAddrPort(policy.UnusedDatagram))
		b.Names(query(t, policy.UnusedName, dnsmessage.TypeA), 1232)
		at := address()
		if _, err := b.to(netip.MustParseAddrPort(policy.MetadataAddress)); err == nil {
			t.Error("the metadata service is reached")
		}
		if _, err := b.to(netip.AddrPortFrom(at, 9)); err == nil {
			t.Error("a closed port is reached")
		}
		c, err := b.to(netip.AddrPortFrom(at, 443))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		return b.awaitRecords(before + 6)[before:]
	}
	for round, want := range []bool{true, false} {
		list := goes()
		if len(list) != 6 {
			t.Fatalf("%d records: %+v", len(list), list)
		}
		for _, r := range list {
			if r.Probe != want {
				t.Errorf("round %d: %s %s:%d is marked %t", round, r.Kind, r.Host, r.Port, r.Probe)
			}
		}
	}
	// A new policy for which a sandbox is probed again.
	b.ExpectProbes()
	talks, err := b.to(netip.AddrPortFrom(address(), 443))
	if err != nil {
		t.Fatal(err)
	}
	before := len(b.records.all())
	if _, err := talks.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	list := b.awaitRecords(before + 1)
	if r := list[len(list)-1]; r.Kind != egress.KindTCP || r.Probe {
		t.Errorf("who speaks is marked: %+v", r)
	}
	for _, r := range goes() {
		if marked := r.Kind != egress.KindDNS || r.Host != "api.good.test"; r.Probe != marked {
			t.Errorf("once more: %s %s:%d is marked %t", r.Kind, r.Host, r.Port, r.Probe)
		}
	}
	if len(up.log()) > 0 || w.dials.Load() > 0 || w.lookups.Load() > 0 {
		t.Errorf("outside: %d requests, %d dials, %d look-ups", len(up.log()), w.dials.Load(), w.lookups.Load())
	}
}
