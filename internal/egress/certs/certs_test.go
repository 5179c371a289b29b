package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/egress/names"
)

func authority(t *testing.T, now func() time.Time) *certs.Authority {
	t.Helper()
	a, err := certs.New("sb_1", now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func pool(t *testing.T, a *certs.Authority) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(a.Certificate()) {
		t.Fatal("the authority's certificate is not PEM")
	}
	return p
}

func TestLeafIsValidForOneName(t *testing.T) {
	a := authority(t, time.Now)
	leaf, err := a.Leaf("API.example.com")
	if err != nil {
		t.Fatal(err)
	}
	verify := func(roots *x509.CertPool, name string) error {
		_, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
		return err
	}
	if err := verify(pool(t, a), "api.example.com"); err != nil {
		t.Fatal(err)
	}
	if err := verify(pool(t, a), "example.com"); err == nil {
		t.Error("the leaf is valid for another name")
	}
	if err := verify(pool(t, authority(t, time.Now)), "api.example.com"); err == nil {
		t.Error("the leaf is valid under another sandbox's authority")
	}
	again, err := a.Leaf("api.example.com")
	if err != nil || again != leaf {
		t.Errorf("a second call for the name made a new leaf: %v", err)
	}
}

func TestLeafRejectsInvalidNames(t *testing.T) {
	a := authority(t, time.Now)
	for _, name := range []string{"", "*.example.com", "a\x00.example.com", "127.0.0.1", "[::1]"} {
		if leaf, err := a.Leaf(name); err == nil {
			t.Errorf("Leaf(%q) = %v, want an error", name, leaf.Leaf.DNSNames)
		}
	}
	if _, err := a.Leaf("127.0.0.1"); !errors.Is(err, names.ErrAddress) {
		t.Errorf("Leaf of an address: got %v, want ErrAddress", err)
	}
}

// An authority signs leaves but no other authorities. Otherwise a sandbox that got the key of a
// leaf could sign further leaves.
func TestLeafCannotSign(t *testing.T) {
	a := authority(t, time.Now)
	leaf, err := a.Leaf("example.com")
	if err != nil {
		t.Fatal(err)
	}
	if leaf.Leaf.IsCA || leaf.Leaf.KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Error("the leaf may sign certificates")
	}
	roots, err := x509.ParseCertificates(decode(t, a.Certificate()))
	if err != nil {
		t.Fatal(err)
	}
	if !roots[0].IsCA || !roots[0].MaxPathLenZero || roots[0].MaxPathLen != 0 {
		t.Error("the authority may sign other authorities")
	}
}

func TestLeafIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := authority(t, time.Now)
		first, err := a.Leaf("example.com")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(17 * time.Hour)
		if same, err := a.Leaf("example.com"); err != nil || same != first {
			t.Fatalf("a leaf with seven hours left was renewed: %v", err)
		}
		time.Sleep(2 * time.Hour)
		second, err := a.Leaf("example.com")
		if err != nil || second == first {
			t.Fatalf("a leaf with five hours left was not renewed: %v", err)
		}
		if left := time.Until(second.Leaf.NotAfter); left != 24*time.Hour {
			t.Errorf("the renewed leaf is valid for %v, want 24h", left)
		}
	})
}

func TestPrintingShowsNoKey(t *testing.T) {
	a := authority(t, time.Now)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
		if got := fmt.Sprintf(verb, a); got != "certificate authority of sandbox sb_1" {
			t.Errorf("%s prints %q", verb, got)
		}
	}
}

func TestClientTrustsLeaf(t *testing.T) {
	a := authority(t, time.Now)
	client, server := net.Pipe()
	go func() {
		s := tls.Server(server, &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return a.Leaf(h.ServerName)
		}})
		_ = s.HandshakeContext(t.Context())
	}()
	c := tls.Client(client, &tls.Config{RootCAs: pool(t, a), ServerName: strings.Repeat("a", 60) + ".example.com"})
	if err := c.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkLeaf(b *testing.B) {
	a, err := certs.New("sb_1", time.Now)
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		if _, err := a.Leaf(fmt.Sprintf("h%d.example.com", n)); err != nil {
			b.Fatal(err)
		}
	}
}

func decode(t *testing.T, data []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatal("the data is not PEM")
	}
	return block.Bytes
}
