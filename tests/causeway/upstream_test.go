package causeway_test

import (
	"io"
	"sync/atomic"
	"testing"
)

// echoes is a server that does not speak HTTP.
type echoes struct{ now, all atomic.Int64 }

func (e *echoes) open() int64 { return e.now.Load() }

func echo(t testing.TB, a *environment, port int, hostnames ...string) *echoes {
	t.Helper()
	l, _ := a.listen(t, port, hostnames...)
	e := &echoes{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.now.Add(1)
			e.all.Add(1)
			go func() {
				defer e.now.Add(-1)
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return e
}
