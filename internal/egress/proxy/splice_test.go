package proxy

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// clientHello returns the first bytes that Go's client sends for a name.
func clientHello(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	in, out := net.Pipe()
	defer in.Close()
	go func() { _ = tls.Client(out, c).Handshake(); out.Close() }()
	head := make([]byte, recordHead)
	if _, err := io.ReadFull(in, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(in, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

func TestParseHello(t *testing.T) {
	b := clientHello(t, &tls.Config{ServerName: "api.good.test"})
	h, n, err := parseHello(append(b, "more"...))
	if err != nil || h.name != "api.good.test" || h.ech || n != len(b) {
		t.Errorf("parseHello = %+v %d %v, want api.good.test and %d bytes", h, n, err, len(b))
	}
	for i := range b {
		if _, _, err := parseHello(b[:i]); !errors.Is(err, errShort) {
			t.Fatalf("parseHello of the first %d bytes: got %v, want errShort", i, err)
		}
	}
	// The hello may be divided into several records.
	body := b[recordHead:]
	var cut []byte
	for len(body) > 0 {
		n := min(7, len(body))
		cut = append(cut, recordHandshake, 3, 1, 0, byte(n))
		cut = append(cut, body[:n]...)
		body = body[n:]
	}
	if h, n, err := parseHello(cut); err != nil || h.name != "api.good.test" || n != len(cut) {
		t.Errorf("parseHello of several records = %+v %d %v, want api.good.test", h, n, err)
	}
	if h, _, err := parseHello(clientHello(t, &tls.Config{InsecureSkipVerify: true})); err != nil || h.name != "" {
		t.Errorf("parseHello without a name = %+v %v, want no name", h, err)
	}
	e := clientHello(t, &tls.Config{ServerName: "inner.test", EncryptedClientHelloConfigList: echList(t, "outer.test"), MinVersion: tls.VersionTLS13})
	if h, _, err := parseHello(e); err != nil || h.name != "outer.test" || !h.ech {
		t.Errorf("parseHello with ECH = %+v %v, want outer.test and ech", h, err)
	}
	for name, bad := range map[string][]byte{
		"two names":    withSecondName(b),
		"alert":        {21, 3, 3, 0, 2, 2, 40},
		"empty record": {22, 3, 1, 0, 0, 0, 0},
		"server hello": {22, 3, 1, 0, 4, 2, 0, 0, 0},
		"long record":  {22, 3, 1, 0x50, 0, 1},
		"SSLv2":        {0x80, 0x2e, 1, 0, 2},
		"bytes at end": func() []byte {
			c := bytes.Clone(b)
			binary.BigEndian.PutUint16(c[7:], binary.BigEndian.Uint16(c[7:])-1)
			return c
		}(),
		"other version": func() []byte { c := bytes.Clone(b); c[1] = 2; return c }(),
	} {
		if h, _, err := parseHello(bad); !errors.Is(err, errHello) {
			t.Errorf("%s: parseHello = %+v %v, want errHello", name, h, err)
		}
	}
}

// withSecondName adds a second server_name extension to a hello.
func withSecondName(b []byte) []byte {
	i := bytes.Index(b, []byte("api.good.test")) - 9
	ext := bytes.Clone(b[i : i+9+13])
	out := append(bytes.Clone(b), ext...)
	n := len(ext)
	add := func(at int) {
		binary.BigEndian.PutUint16(out[at:], binary.BigEndian.Uint16(out[at:])+uint16(n))
	}
	add(3)
	add(7)
	add(recordHead + 4 + 2 + 32 + 1 + int(b[43]) + 2 + int(binary.BigEndian.Uint16(b[44+int(b[43]):])) + 2)
	return out
}

func FuzzHello(f *testing.F) {
	plain := clientHello(f, &tls.Config{ServerName: "api.good.test"})
	f.Add(plain)
	f.Add(withSecondName(plain))
	f.Add(clientHello(f, &tls.Config{ServerName: "a.test", EncryptedClientHelloConfigList: echList(f, "outer.test"), MinVersion: tls.VersionTLS13}))
	f.Add([]byte{22, 3, 1, 0, 5, 1, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := parseHello(b)
		if err != nil {
			if n != 0 || h != (hello{}) {
				t.Fatalf("parseHello returned %+v %d with an error", h, n)
			}
			return
		}
		if n < recordHead+4 || n > len(b) {
			t.Fatalf("parseHello returned the size %d for %d bytes", n, len(b))
		}
		// If Go's own parser accepts the same bytes, it must find the same name.
		message := errors.New("stop")
		_ = tls.Server(&cannedConn{Reader: bytes.NewReader(b[:n])}, &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			if !strings.EqualFold(i.ServerName, strings.TrimSuffix(h.name, ".")) && !strings.EqualFold(i.ServerName, h.name) {
				t.Errorf("parseHello found %q, but crypto/tls %q", h.name, i.ServerName)
			}
			return nil, message
		}}).Handshake()
	})
}

// cannedConn is a connection that yields the bytes of its reader.
type cannedConn struct {
	net.Conn
	io.Reader
}

func (c *cannedConn) Read(p []byte) (int, error)       { return c.Reader.Read(p) }
func (c *cannedConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *cannedConn) Close() error                     { return nil }
func (c *cannedConn) SetDeadline(time.Time) error      { return nil }
func (c *cannedConn) SetReadDeadline(time.Time) error  { return nil }
func (c *cannedConn) SetWriteDeadline(time.Time) error { return nil }

func TestSpliceForwardsBytesUnchanged(t *testing.T) {
	w := newEnvironment(t)
	ln, up := w.listen("443", "pass.good.test")
	rest := make([]byte, 300_000)
	rand.Read(rest)
	first := clientHello(t, &tls.Config{ServerName: "pass.good.test"})
	answer := append([]byte{22, 3, 3, 0, 60, 2}, rest[:200_000]...)
	got := make(chan []byte, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.ReadFull(c, make([]byte, len(first)))
		c.Write(answer[:10])
		c.Write(answer[10:])
		all, _ := io.ReadAll(c)
		got <- all
		c.Write(rest[:5])
	}()
	b := w.newSandbox(oneHostPolicy)
	c, err := b.dial("pass.good.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		for _, part := range [][]byte{first[:1], first[1:100], first[100:], rest[:1], rest[1:]} {
			c.Write(part)
		}
		c.(*net.TCPConn).CloseWrite()
	}()
	back, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(back, append(bytes.Clone(answer), rest[:5]...)) {
		t.Errorf("the client received %d bytes, %v, want the server's bytes unchanged", len(back), err)
	}
	if !bytes.Equal(<-got, rest) {
		t.Error("the server received other bytes than the client sent")
	}
	hosttest.Eventually(t, "the entry has all bytes", func() bool {
		l := b.records.all(egress.KindTLS)
		return len(l) == 1 && l[0].Sent == int64(len(first)+len(rest)) && l[0].Received == int64(len(answer)+5) && l[0].Address == up.String()+":443" && l[0].Error == ""
	})
}

func TestSecondHelloMustNameSameHost(t *testing.T) {
	retry := append([]byte{22, 3, 3, 0, 44, 2, 0, 0, 40, 3, 3}, func() []byte { s := sha256.Sum256([]byte("HelloRetryRequest")); return s[:] }()...)
	retry = append(retry, 0, 0x13, 1, 0, 0, 0)
	for _, name := range []string{"pass.good.test", "other.good.test"} {
		w := newEnvironment(t)
		ln, _ := w.listen("443", "pass.good.test")
		got := make(chan int, 1)
		first := clientHello(t, &tls.Config{ServerName: "pass.good.test"})
		second := clientHello(t, &tls.Config{ServerName: name})
		go func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			io.ReadFull(c, make([]byte, len(first)))
			c.Write(retry)
			n, _ := io.ReadFull(c, make([]byte, 6+len(second)))
			got <- n
		}()
		b := w.newSandbox(oneHostPolicy)
		c, err := b.dial("pass.good.test", 443)
		if err != nil {
			t.Fatal(err)
		}
		c.Write(first)
		c.Write([]byte{20, 3, 3, 0, 1, 1})
		c.Write(second)
		n := <-got
		if same := name == "pass.good.test"; same != (n == 6+len(second)) {
			t.Errorf("second hello for %s: the server got %d of %d bytes, want all only for the same host", name, n, 6+len(second))
		}
		c.Close()
		hosttest.Eventually(t, "the connection has an entry", func() bool {
			l := b.records.all(egress.KindTLS)
			return len(l) == 1 && l[0].Took > 0 && (l[0].Rule == policy.RuleSNI) == (name != "pass.good.test")
		})
	}
}
