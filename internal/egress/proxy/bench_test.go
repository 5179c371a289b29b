package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"
)

// direct returns a client that reaches the servers without the gateway.
func (w *environment) direct(h2 bool) *http.Client {
	tr := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return w.dial(ctx, network, net.JoinHostPort(w.zone[host][0].String(), port))
		},
		TLSClientConfig: &tls.Config{RootCAs: w.roots}, ForceAttemptHTTP2: h2, DisableCompression: true,
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func fetch(b *testing.B, c *http.Client, url string) int64 {
	resp, err := c.Get(url)
	if err != nil {
		b.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != 200 {
		b.Fatalf("GET %s: status %s, %v, want 200", url, resp.Status, err)
	}
	resp.Body.Close()
	return n
}

func latencies(b *testing.B, do func()) {
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		start := time.Now()
		do()
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

func BenchmarkKeptAlive(b *testing.B) {
	w := newEnvironment(b)
	w.serve("443", func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "answer") }, "api.good.test")
	sb := w.newSandbox(oneHostPolicy, withToken)
	for name, c := range map[string]*http.Client{"direct/h1": w.direct(false), "direct/h2": w.direct(true), "sandbox/h1": sb.client(false), "sandbox/h2": sb.client(true)} {
		b.Run(name, func(b *testing.B) {
			fetch(b, c, "https://api.good.test/")
			latencies(b, func() { fetch(b, c, "https://api.good.test/") })
		})
	}
}

func BenchmarkNewConnection(b *testing.B) {
	w := newEnvironment(b)
	w.serve("443", func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "answer") }, "api.good.test", "pass.good.test")
	sb := w.newSandbox(oneHostPolicy, func(c *Config) { c.Limits.Connections = 1 << 20 })
	if _, err := sb.names.Address("api.good.test"); err != nil {
		b.Fatal(err)
	}
	for name, connect := range map[string]func() (*http.Client, string){
		"direct": func() (*http.Client, string) { return w.direct(false), "https://api.good.test/" },
		"decrypted": func() (*http.Client, string) {
			sb.current.Load().transport.CloseIdleConnections()
			return sb.client(false), "https://api.good.test/"
		},
		"not-decrypted": func() (*http.Client, string) {
			c := sb.client(false)
			c.Transport.(*http.Transport).TLSClientConfig.RootCAs = w.roots
			return c, "https://pass.good.test/"
		},
	} {
		b.Run(name, func(b *testing.B) {
			latencies(b, func() {
				// Switch the limits against floods off, which are not measured here.
				sb.floods.queries = flood{rate: 1 << 30}
				sb.floods.connects = flood{rate: 1 << 30}
				c, url := connect()
				fetch(b, c, url)
				c.CloseIdleConnections()
			})
		})
	}
}

func BenchmarkDownload(b *testing.B) {
	const size = 64 << 20
	piece := make([]byte, 64<<10)
	for i := range piece {
		piece[i] = byte(i*7 + i>>8)
	}
	w := newEnvironment(b)
	w.serve("443", func(rw http.ResponseWriter, _ *http.Request) {
		for range size / len(piece) {
			rw.Write(piece)
		}
	}, "api.good.test", "pass.good.test", "other.good.test")
	sb := w.newSandbox(oneHostPolicy, withToken)
	pass := sb.client(false)
	pass.Transport.(*http.Transport).TLSClientConfig.RootCAs = w.roots
	for _, c := range []struct {
		name, url string
		client    *http.Client
	}{
		{"direct", "https://api.good.test/", w.direct(false)},
		{"not-decrypted", "https://pass.good.test/", pass},
		{"decrypted", "https://other.good.test/", sb.client(false)},
		{"decrypted-h2", "https://other.good.test/", sb.client(true)},
		{"redacted", "https://api.good.test/", sb.client(false)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				if n := fetch(b, c.client, c.url); n != size {
					b.Fatalf("downloaded %d bytes, want %d", n, size)
				}
			}
		})
	}
}

func BenchmarkIdleBox(b *testing.B) {
	w := newEnvironment(b)
	p := compiled(b, oneHostPolicy)
	heap := func() (m runtime.MemStats) {
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m
	}
	for b.Loop() {
		before, routines := heap(), runtime.NumGoroutine()
		sandboxes := make([]*testSandbox, 100)
		for i := range sandboxes {
			sandboxes[i] = w.newSandbox(oneHostPolicy, withToken, func(c *Config) { c.Policy = p })
		}
		after := heap()
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/100/1024, "KiB/sandbox")
		b.ReportMetric(float64(runtime.NumGoroutine()-routines)/100, "goroutines/sandbox")
		for _, sandbox := range sandboxes {
			sandbox.Close()
		}
	}
}
