package names_test

import (
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/crannog/crannog/internal/egress/names"
)

func BenchmarkCanonical(b *testing.B) {
	for b.Loop() {
		_, _ = names.Canonical("raw.githubusercontent.com")
	}
}

func BenchmarkPath(b *testing.B) {
	for b.Loop() {
		_ = names.Path("/repos/acme/pay/issues/17", names.PathOptions{})
	}
}

func BenchmarkCheckAddress(b *testing.B) {
	a := netip.MustParseAddr("2606:4700::1111")
	for b.Loop() {
		_ = names.CheckAddress(a, nil, nil)
	}
}

func BenchmarkAnswer(b *testing.B) {
	q := query(b, "good.test.", dnsmessage.TypeA)
	lookup := lookupIn(names.NewTable())
	for b.Loop() {
		_, _, _ = names.Answer(q, 512, lookup)
	}
}
