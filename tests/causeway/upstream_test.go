package causeway_test

import (
	"io"
	"sync/atomic"
	"testing"
)

// echoServer is a server of the fake internet that does not speak HTTP: it returns each byte.
type echoServer struct{ openConns, total atomic.Int64 }

// open returns the number of open connections.
func (e *echoServer) open() int64 { return e.openConns.Load() }

// startEcho starts an echoServer on a port of some hosts.
func startEcho(t testing.TB, a *environment, port int, hostnames ...string) *echoServer {
	t.Helper()
	l, _ := a.listen(t, port, hostnames...)
	e := &echoServer{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.openConns.Add(1)
			e.total.Add(1)
			go func() {
				defer e.openConns.Add(-1)
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return e
}
