package proxy

import (
	"net"
	"net/http"
	"strconv"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

// connect handles a CONNECT to the proxy port. The decisions about the tunnelled connection are the
// same as if the program had dialled the name itself.
func (x *exchange) connect() {
	f, b := x.flow, x.handler
	x.action.method, x.record.Kind = http.MethodConnect, egress.KindConnect
	stop := x.connectTarget()
	if stop == nil {
		if err := b.records.ready(b.current.Load()); err != nil {
			stop = unrecorded(err)
		}
	}
	if stop != nil {
		b.load.running.Add(1) // end removes it
		defer x.end()
		stop.writeConnect(x)
		return
	}
	f.mu.Lock()
	// From here on this is a connection like any other, without an entry so far.
	delete(f.exchanges, x)
	f.dest.host, f.dest.port, f.mode.proxy, f.mode.connected, f.recorded = x.dest.host, x.dest.port, false, true, false
	f.mu.Unlock()
	x.stopC()
	conn, buffered, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		f.note(nil, err.Error())
		panic(http.ErrAbortHandler)
	}
	handed := false
	defer func() {
		if !handed {
			f.end()
		}
	}()
	c, ok := conn.(*client)
	if !ok {
		return
	}
	c.head = nil
	if n := buffered.Reader.Buffered(); n > 0 {
		// The server has read these bytes ahead. They are the beginning of the tunnelled data.
		head, err := buffered.Reader.Peek(n)
		if err != nil {
			return
		}
		c.head = append([]byte(nil), head...)
	}
	if _, err := c.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		return
	}
	// enter applies the current policy, which may be newer than that of the request.
	handed = f.enter(c)
}

func (x *exchange) connectTarget() *refusal {
	host, port, err := authority(x.r.Host, 0)
	if err != nil {
		return floor(http.StatusForbidden, "host", policy.RuleName, fault.PublicText(err))
	}
	x.dest.host, x.dest.port = host, port
	x.record.Host, x.record.Port = host, port
	c := x.gen.policy.Connect(host, port)
	if c.Effect == egress.Deny {
		r := byPolicy(c.Decision)
		r.status = http.StatusForbidden
		return r
	}
	return x.handler.undialled(host, c, http.StatusForbidden)
}

// writeConnect answers a CONNECT, whose target is an authority and not a URL.
func (r *refusal) writeConnect(x *exchange) {
	x.record.Decision, x.record.Status = r.decision, r.status
	if r.cause != nil {
		x.record.Error = r.cause.Error()
	}
	// The proxy port refuses before anything is sent.
	x.record.Probe = x.handler.probes.take(x.record)
	target := printable(x.r.Host, 253)
	if x.dest.host != "" {
		target = net.JoinHostPort(x.dest.host, strconv.Itoa(x.dest.port))
	}
	// A CONNECT has no body, and the data after it must not be parsed as a request.
	x.w.Header().Set("Connection", "close")
	r.write(x.w, false, http.MethodConnect, target)
}
