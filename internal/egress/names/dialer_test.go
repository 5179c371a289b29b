package names_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/fault"
)

// resolver answers each lookup with the next of its answers, and then always with the last one.
type resolver struct {
	answers [][]netip.Addr
	err     error
	asked   []string
}

func (r *resolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	r.asked = append(r.asked, host)
	if r.err != nil {
		return nil, r.err
	}
	return r.answers[min(len(r.asked), len(r.answers))-1], nil
}

func addresses(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// dialRecorder records the dialled addresses. An address in down does not answer.
type dialRecorder struct {
	dialled []string
	down    []string
}

func (w *dialRecorder) dial(_ context.Context, _, address string) (net.Conn, error) {
	w.dialled = append(w.dialled, address)
	if slices.Contains(w.down, address) {
		return nil, errors.New("connection refused")
	}
	c, other := net.Pipe()
	_ = other.Close()
	return c, nil
}

// Threat N10 (docs/reference/threat-model.md): a name that resolves to a forbidden address is not
// dialled, even if it also has a permitted address.
func TestDialRejectsForbiddenAddresses(t *testing.T) {
	for _, answer := range [][]string{
		{"10.0.0.5"}, {"169.254.169.254"}, {"127.0.0.1"}, {"0.0.0.0"}, {"::1"}, {"::ffff:127.0.0.1"}, {"64:ff9b::a9fe:a9fe"}, {"2002:7f00:1::"},
		{"93.184.216.34", "127.0.0.1"}, {"127.0.0.1", "93.184.216.34"}, {"93.184.216.34", "10.0.0.5", "1.1.1.1"},
	} {
		w := &dialRecorder{}
		d := &names.Dialer{Resolver: &resolver{answers: [][]netip.Addr{addresses(answer...)}}, DialAddress: w.dial}
		c, err := d.Dial(t.Context(), "good.test", 443, nil)
		if c != nil || fault.KindOf(err) != fault.Denied || len(w.dialled) != 0 {
			t.Errorf("Dial with the answer %v: got %v, dialled %v, want Denied without a dial", answer, err, w.dialled)
		}
	}
	w := &dialRecorder{}
	d := &names.Dialer{Resolver: &resolver{answers: [][]netip.Addr{addresses("93.184.216.34")}}, DialAddress: w.dial}
	if _, err := d.Dial(t.Context(), "good.test", 443, nil); err != nil || !slices.Equal(w.dialled, []string{"93.184.216.34:443"}) {
		t.Errorf("control: Dial with a public address: %v, dialled %v", err, w.dialled)
	}
}

// Threat N11 (docs/reference/threat-model.md): a name server that answers with a public address for
// the check and with the loopback for the dial has no effect, because there is no second lookup.
// Listener and dialler are real, so only the check prevents the connection.
func TestDialResolvesOnce(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan struct{}, 4)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
			accepted <- struct{}{}
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port

	r := &resolver{answers: [][]netip.Addr{addresses("93.184.216.34"), addresses("127.0.0.1")}}
	w := &dialRecorder{}
	d := &names.Dialer{Resolver: r, DialAddress: w.dial}
	if _, err := d.Dial(t.Context(), "rebind.test", port, nil); err != nil {
		t.Fatal(err)
	}
	if len(r.asked) != 1 || len(w.dialled) != 1 || netip.MustParseAddrPort(w.dialled[0]).Addr() != r.answers[0][0] {
		t.Fatalf("%d lookups, dialled %v, want one of each with the first answer", len(r.asked), w.dialled)
	}
	d.DialAddress = nil
	if _, err := d.Dial(t.Context(), "rebind.test", port, anyAddress); fault.KindOf(err) != fault.Denied {
		t.Fatalf("Dial with the second answer: got %v, want Denied", err)
	}
	if len(accepted) != 0 {
		t.Fatal("the loopback listener was reached")
	}
	// Control: this listener can be reached.
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	<-accepted
	_ = c.Close()
}

func TestDialTriesAddressesInOrder(t *testing.T) {
	w := &dialRecorder{down: []string{"1.1.1.1:80"}}
	d := &names.Dialer{Resolver: &resolver{answers: [][]netip.Addr{addresses("1.1.1.1", "::ffff:1.0.0.1", "8.8.8.8")}}, DialAddress: w.dial}
	if _, err := d.Dial(t.Context(), "One.Test.", 80, nil); err != nil || !slices.Equal(w.dialled, []string{"1.1.1.1:80", "1.0.0.1:80"}) {
		t.Errorf("Dial returned %v, dialled %v, want 1.1.1.1 and then 1.0.0.1", err, w.dialled)
	}
}

func TestDialErrorKinds(t *testing.T) {
	down := &dialRecorder{down: []string{"1.1.1.1:80"}}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		host string
		port int
		r    *resolver
		want fault.Kind
	}{
		"host is down":              {t.Context(), "a.test", 80, &resolver{answers: [][]netip.Addr{addresses("1.1.1.1")}}, fault.Unavailable},
		"canceled":                  {canceled, "a.test", 80, &resolver{answers: [][]netip.Addr{addresses("1.1.1.1")}}, fault.Canceled},
		"unknown name":              {t.Context(), "a.test", 80, &resolver{err: &net.DNSError{IsNotFound: true}}, fault.NotFound},
		"resolver fails":            {t.Context(), "a.test", 80, &resolver{err: errors.New("refused")}, fault.Unavailable},
		"no addresses":              {t.Context(), "a.test", 80, &resolver{answers: [][]netip.Addr{nil}}, fault.NotFound},
		"address instead of a name": {t.Context(), "1.1.1.1", 80, &resolver{}, fault.Invalid},
		"port 0":                    {t.Context(), "a.test", 0, &resolver{}, fault.Invalid},
		"port 65536":                {t.Context(), "a.test", 65536, &resolver{}, fault.Invalid},
	} {
		d := &names.Dialer{Resolver: c.r, DialAddress: down.dial}
		if conn, err := d.Dial(c.ctx, c.host, c.port, nil); conn != nil || fault.KindOf(err) != c.want {
			t.Errorf("%s: got %v %v, want %v", name, fault.KindOf(err), err, c.want)
		}
	}
}
