package proxy

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// awaitRecords returns the entries once there are at least n.
func (b *testSandbox) awaitRecords(n int) []egress.Record {
	b.t.Helper()
	for end := hosttest.Deadline(); ; time.Sleep(time.Millisecond) {
		if list := b.records.all(); len(list) >= n || time.Now().After(end) {
			return list
		}
	}
}

// Entries of the first process's probes are marked, once each. The probes reach no host, and no
// other entry is marked.
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
	// makeProbes makes all probes, and waits for their entries.
	makeProbes := func() []egress.Record {
		t.Helper()
		before := len(b.records.all())
		b.Dropped("udp", netip.MustParseAddrPort(policy.UnusedDatagram))
		b.Names(query(t, policy.UnusedName, dnsmessage.TypeA), 1232)
		at := address()
		if _, err := b.to(netip.MustParseAddrPort(policy.MetadataAddress)); err == nil {
			t.Error("a connection to the metadata service succeeded")
		}
		if _, err := b.to(netip.AddrPortFrom(at, 9)); err == nil {
			t.Error("a connection to a closed port succeeded")
		}
		c, err := b.to(netip.AddrPortFrom(at, 443))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		return b.awaitRecords(before + 6)[before:]
	}
	for round, want := range []bool{true, false} {
		list := makeProbes()
		if len(list) != 6 {
			t.Fatalf("the probes have %d entries, want 6: %+v", len(list), list)
		}
		for _, r := range list {
			if r.Probe != want {
				t.Errorf("round %d: the entry of %s %s:%d is marked %t, want %t", round, r.Kind, r.Host, r.Port, r.Probe, want)
			}
		}
	}
	// A sandbox is probed again for a new policy.
	b.ExpectProbes()
	talking, err := b.to(netip.AddrPortFrom(address(), 443))
	if err != nil {
		t.Fatal(err)
	}
	before := len(b.records.all())
	if _, err := talking.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	list := b.awaitRecords(before + 1)
	if r := list[len(list)-1]; r.Kind != egress.KindTCP || r.Probe {
		t.Errorf("the entry of a connection with data is marked as a probe: %+v", r)
	}
	for _, r := range makeProbes() {
		if marked := r.Kind != egress.KindDNS || r.Host != "api.good.test"; r.Probe != marked {
			t.Errorf("after ExpectProbes: the entry of %s %s:%d is marked %t, want %t", r.Kind, r.Host, r.Port, r.Probe, marked)
		}
	}
	// A sandbox without a network interface makes the same attempts through the proxy.
	b.ExpectProbes()
	before = len(b.records.all())
	for _, want := range []bool{true, false} {
		if got := b.connect("api.good.test:9"); !strings.HasPrefix(got, "HTTP/1.1 403") {
			t.Errorf("CONNECT to a closed port: %s", got)
		}
		list := b.awaitRecords(before + 1)
		if r := list[len(list)-1]; r.Kind != egress.KindConnect || r.Probe != want {
			t.Errorf("the entry of a CONNECT is %+v, want it marked %t", r, want)
		}
		before = len(list)
	}
	if len(up.log()) > 0 || w.dials.Load() > 0 || w.lookups.Load() > 0 {
		t.Errorf("the probes caused %d requests, %d dials and %d lookups, want none", len(up.log()), w.dials.Load(), w.lookups.Load())
	}
}
