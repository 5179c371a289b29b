package names_test

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/names"
)

func TestCanonicalSpelling(t *testing.T) {
	long := strings.Repeat("a", 63)
	for in, want := range map[string]string{
		"example.com":                         "example.com",
		"EXAMPLE.Com":                         "example.com",
		"example.com.":                        "example.com",
		"xn--bcher-kva.example":               "xn--bcher-kva.example",
		"r3---sn-4g5e6nz7.googlevideo.com":    "r3---sn-4g5e6nz7.googlevideo.com",
		"1.2.3.4.example":                     "1.2.3.4.example",
		"db":                                  "db",
		"0xg":                                 "0xg",
		"cafe":                                "cafe",
		long + "." + long + "." + long + ".a": long + "." + long + "." + long + ".a",
	} {
		if got, err := names.Canonical(in); got != want || err != nil {
			t.Errorf("Canonical(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
}

// Threat N16 (docs/reference/threat-model.md), for hosts: a host that two parsers may interpret
// differently is rejected.
func TestCanonicalRejectsAmbiguousHosts(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, in := range []string{
		"", ".", "..", "example.com..", ".example.com", "a..b",
		"evil.test\x00.google.com", "evil.test%00.google.com", "evil.test#.google.com", "user@example.com",
		"example.com/", "example.com?", "example.com:443", " example.com", "example.com\r\n", "exa mple.com",
		"-a.com", "a-.com", "a.-b", "a_b.com", "*.example.com",
		"gооgle.com", "ｅxample.com", "example。com", "e\u212aample.com", "bücher.example",
		long + "a.com", long + "." + long + "." + long + "." + long,
	} {
		got, err := names.Canonical(in)
		if err == nil {
			t.Errorf("Canonical(%q) = %q, want an error", in, got)
		}
		if errors.Is(err, names.ErrAddress) {
			t.Errorf("Canonical(%q) = ErrAddress, want another error", in)
		}
	}
}

// Threat N16 (docs/reference/threat-model.md), for addresses: every spelling of an address is
// rejected.
func TestCanonicalRejectsAddresses(t *testing.T) {
	for _, in := range []string{
		"127.0.0.1", "127.1", "2130706433", "0x7f000001", "0X7F000001", "0x7f.1", "017700000001", "0177.0.0.1",
		"127.0.0.1.", "1.2.3.4.5", "256.256.256.256", "example.1", "example.0x1f", "a.0x", "::1", "[::1]", "fe80::1%eth0",
		"::ffff:127.0.0.1", "[::ffff:7f00:1]",
	} {
		if got, err := names.Canonical(in); !errors.Is(err, names.ErrAddress) {
			t.Errorf("Canonical(%q) = %q, %v, want ErrAddress", in, got, err)
		}
	}
}

func TestAuthoritySplitsHostAndPort(t *testing.T) {
	for _, c := range []struct {
		in   string
		def  int
		host string
		port int
	}{
		{"example.com", 443, "example.com", 443},
		{"Example.com.:8443", 443, "example.com", 8443},
		{"example.com:1", 0, "example.com", 1},
		{"example.com:65535", 0, "example.com", 65535},
	} {
		if host, port, err := names.Authority(c.in, c.def); host != c.host || port != c.port || err != nil {
			t.Errorf("Authority(%q) = %q, %d, %v, want %q, %d", c.in, host, port, err, c.host, c.port)
		}
	}
	for _, in := range []string{
		"example.com:", "example.com:0", "example.com:65536", "example.com:99999", "example.com:100000", "example.com:+443",
		"example.com:-1", "example.com:0443", "example.com:4 43", "example.com:443:443", ":443", "user@example.com:443",
		"example.com:443/", "example.com:x", "example.com:４４３", "https://example.com", "[example.com]:443", "a:443@b:443",
	} {
		if host, port, err := names.Authority(in, 443); err == nil {
			t.Errorf("Authority(%q) = %q, %d, want an error", in, host, port)
		}
	}
	if _, _, err := names.Authority("example.com", 0); err == nil {
		t.Error("Authority without a port and without a default returned no error")
	}
	for _, in := range []string{"127.0.0.1:443", "[::1]:443", "[::1]", "::1", "2130706433:443"} {
		if _, _, err := names.Authority(in, 443); !errors.Is(err, names.ErrAddress) {
			t.Errorf("Authority(%q) = %v, want ErrAddress", in, err)
		}
	}
}

// Two other parsers interpret every host that Canonical accepts as the same name.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"example.com", "EXAMPLE.com.", "127.1", "0x7f.1", "a%00b", "[::1]", "xn--a", "a@b", "::ffff:1.2.3.4", "\u212a.com"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := names.Canonical(in)
		if err != nil {
			if got != "" {
				t.Fatalf("Canonical(%q) returned %q with an error", in, got)
			}
			return
		}
		if again, err := names.Canonical(got); again != got || err != nil {
			t.Fatalf("Canonical(%q) = %q, %v, want the same name", got, again, err)
		}
		if !strings.EqualFold(strings.TrimSuffix(in, "."), got) {
			t.Fatalf("Canonical(%q) = %q, which is another name", in, got)
		}
		if a, err := netip.ParseAddr(got); err == nil {
			t.Fatalf("Canonical(%q) = %q, which is the address %v", in, got, a)
		}
		for _, spelled := range []string{in, got} {
			u, err := url.Parse("https://" + spelled + ":443/x")
			if err != nil || !strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), got) || u.User != nil || u.Path != "/x" {
				t.Fatalf("url.Parse interprets %q as %+v, %v", spelled, u, err)
			}
		}
	})
}

func FuzzAuthority(f *testing.F) {
	for _, s := range []string{"example.com:443", "example.com", "[::1]:443", "a:b:1", "a@b:1", "a:+1", "a:00001", ":1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		host, port, err := names.Authority(in, 443)
		if err != nil {
			return
		}
		if c, err := names.Canonical(host); c != host || err != nil {
			t.Fatalf("the host %q of %q is not canonical", host, in)
		}
		u, err := url.Parse("https://" + in)
		if err != nil || !strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), host) {
			t.Fatalf("url.Parse interprets %q as %+v, %v; Authority returns %q", in, u, err, host)
		}
		if p := u.Port(); p == "" && port != 443 || p != "" && netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(port)).String() != "0.0.0.0:"+p {
			t.Fatalf("url.Parse finds the port %q in %q; Authority returns %d", p, in, port)
		}
	})
}
