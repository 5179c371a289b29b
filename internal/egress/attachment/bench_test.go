package attachment_test

import (
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress/attachment"
)

const chunk = 256 << 10

// startSource starts a server on loopback that sends without end, and returns its address.
func startSource(b *testing.B) string {
	return startServer(b, func(c net.Conn) {
		data := make([]byte, chunk)
		for {
			if _, err := c.Write(data); err != nil {
				return
			}
		}
	})
}

// startServer starts a server on loopback that calls each for every connection, and returns its
// address.
func startServer(b testing.TB, each func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				each(c)
			}()
		}
	}()
	return l.Addr().String()
}

// splice joins a flow to a server on loopback, as the proxy does with connections that it does not
// decrypt.
func splice(to string) func(f *attachment.Flow) {
	return func(f *attachment.Flow) {
		out, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer out.Close()
		in, err := f.Accept()
		if err != nil {
			return
		}
		defer in.Close()
		go func() {
			buffer := make([]byte, chunk)
			_, _ = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, buffer)
			_ = out.(*net.TCPConn).CloseWrite()
		}()
		buffer := make([]byte, chunk)
		_, _ = io.CopyBuffer(struct{ io.Writer }{in}, struct{ io.Reader }{out}, buffer)
	}
}

func download(b *testing.B, c io.Reader) {
	buffer := make([]byte, chunk)
	b.SetBytes(1 << 20)
	b.ResetTimer()
	for range b.N {
		for n := 1 << 20; n > 0; {
			got, err := c.Read(buffer[:min(n, chunk)])
			if err != nil {
				b.Fatal(err)
			}
			n -= got
		}
	}
	b.StopTimer()
}

func BenchmarkDownloadDirect(b *testing.B) {
	c, err := net.Dial("tcp", startSource(b))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	download(b, c)
}

// Both stacks run in this process: in production, a sandbox's half runs in the sandbox.
func BenchmarkDownload(b *testing.B) {
	l, peer := open(b, &handler{tcp: splice(startSource(b))}, attachment.Options{})
	download(b, peer.mustDial(b, "198.18.0.7:80"))
	b.ReportMetric(float64(l.Counts().Lost), "lost")
}

func BenchmarkUpload(b *testing.B) {
	l, peer := open(b, &handler{tcp: splice(startServer(b, func(c net.Conn) {
		buffer := make([]byte, chunk)
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, buffer)
	}))}, attachment.Options{})
	c := peer.mustDial(b, "198.18.0.7:80")
	data := make([]byte, chunk)
	b.SetBytes(1 << 20)
	b.ResetTimer()
	for range b.N {
		for range (1 << 20) / chunk {
			if _, err := c.Write(data); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(l.Counts().Lost), "lost")
}

func roundTrips(b *testing.B, c io.ReadWriter) {
	message := make([]byte, 64)
	b.ResetTimer()
	for range b.N {
		if _, err := c.Write(message); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, message); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
}

func BenchmarkRoundTripDirect(b *testing.B) {
	c, err := net.Dial("tcp", startServer(b, func(c net.Conn) { _, _ = io.Copy(c, c) }))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	roundTrips(b, c)
}

func BenchmarkRoundTrip(b *testing.B) {
	_, peer := open(b, &handler{tcp: splice(startServer(b, func(c net.Conn) { _, _ = io.Copy(c, c) }))}, attachment.Options{})
	roundTrips(b, peer.mustDial(b, "198.18.0.7:80"))
}

func BenchmarkConnect(b *testing.B) {
	_, peer := open(b, &handler{tcp: func(f *attachment.Flow) {
		if c, err := f.Accept(); err == nil {
			c.Close()
		}
	}}, attachment.Options{ConnectsPerSecond: 1 << 20})
	b.ResetTimer()
	for range b.N {
		c, err := peer.dial(b.Context(), "198.18.0.7:80")
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	}
}

// BenchmarkIdleLink measures the memory and threads of an unused attachment.
func BenchmarkIdleLink(b *testing.B) {
	const links = 200
	for range b.N {
		var ends []*os.File
		var all []attachment.Attachment
		before, threads := memory(), threadCount()
		for range links {
			end, ours, err := attachment.Pair(attachment.Packets)
			if err != nil {
				b.Fatal(err)
			}
			l, err := attachment.Open(attachment.Packets, ours, &handler{}, attachment.Options{})
			if err != nil {
				b.Fatal(err)
			}
			ends, all = append(ends, end), append(all, l)
		}
		time.Sleep(100 * time.Millisecond)
		b.ReportMetric(float64(memory()-before)/links, "B/link")
		b.ReportMetric(float64(threadCount()-threads)/links, "threads/link")
		for i, l := range all {
			l.Close()
			ends[i].Close()
		}
	}
}

func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

func threadCount() int {
	data, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(data)) {
		if after, ok := strings.CutPrefix(line, "Threads:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(after))
			return n
		}
	}
	return 0
}
