package offline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
)

// newServer returns a server and a resolver that queries it.
func newServer(t *testing.T) (*Server, *net.Resolver) {
	t.Helper()
	s, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp4", s.Addr().String())
	}}
}

func TestNoNameExistsAndLookupsAreRecorded(t *testing.T) {
	s, resolver := newServer(t)
	for _, name := range []string{"Example.com.", "pypi.org.", "example.com."} {
		_, err := resolver.LookupHost(t.Context(), name)
		var dns *net.DNSError
		if !errors.As(err, &dns) || !dns.IsNotFound {
			t.Fatalf("%s: got %v, want a name that does not exist", name, err)
		}
	}
	got := s.Lookups()
	if len(got) != 2 || got[0].Name != "example.com" || got[1].Name != "pypi.org" {
		t.Fatalf("got %v, want example.com and pypi.org", got)
	}
	if !got[0].At.After(got[1].At) {
		t.Error("a second query did not update the time of a name")
	}
}

func TestRecordedNamesAreLimited(t *testing.T) {
	s, _ := newServer(t)
	for i := range 2 * maxNames {
		s.record(fmt.Sprint(i, ".example"))
	}
	got := s.Lookups()
	if n := len(got); n != maxNames {
		t.Errorf("got %d names, want %d", n, maxNames)
	}
	if last := got[len(got)-1].Name; last != fmt.Sprint(2*maxNames-1, ".example") {
		t.Errorf("got %s as the last name: the latest was not recorded", last)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x03com\x00\x00\x01\x00\x01"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, query []byte) {
		reply, _, err := answer(query)
		if err == nil && (len(reply) < 12 || reply[2]&0x80 == 0 || reply[3]&0x0f != 3) {
			t.Errorf("reply %x does not deny the name", reply)
		}
	})
}
