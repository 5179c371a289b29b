package proxy

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// splice forwards a TLS connection without decrypting it. It returns a refusal, with nothing sent
// yet, if the host cannot be reached.
func (f *flow) splice(c *client, conn policy.Connection, m *meter, helloSize int) *refusal {
	up, stop := f.connect(egress.KindTLS, conn.Decision, m)
	if stop != nil {
		return stop
	}
	f.forwardBoth(c, up, m, func() error {
		return f.firstFlight(c, up.Conn, m, helloSize)
	})
	return nil
}

// tunnel forwards all bytes, if a rule allows that.
func (f *flow) tunnel(c *client, g *generation, conn policy.Connection, m *meter) {
	if stop := f.ask(g, conn); stop != nil {
		f.note(stop, "")
		return
	}
	up, stop := f.connect(egress.KindTunnel, conn.Decision, m)
	if stop != nil {
		f.note(stop, failure(stop.cause))
		return
	}
	f.forwardBoth(c, up, m, nil)
}

func failure(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// passage is an upstream connection with an entry about its beginning.
type passage struct {
	net.Conn
	record egress.Record
	gen    *generation
}

// connect dials, and writes an entry before any bytes pass that the gateway does not inspect.
func (f *flow) connect(kind egress.Kind, d egress.Decision, m *meter) (*passage, *refusal) {
	if m.full() {
		return nil, overBytes(d)
	}
	up, err := f.handler.dial(f.ctx, f.dest.host, f.dest.port)
	if err != nil {
		return nil, byUpstream(err)
	}
	f.mu.Lock()
	dead := f.killed.dead
	f.upstream, f.mode.opaque = up, true
	f.mu.Unlock()
	// The policy may have changed while dialling.
	g := f.handler.current.Load()
	if why := f.reasonToEnd(g); dead || why != "" {
		_ = up.Close()
		return nil, &refusal{status: 403, code: "denied", decision: g.policy.Connect(f.dest.host, f.dest.port).Decision}
	}
	p := &passage{Conn: up, gen: g, record: egress.Record{
		Time: f.started, Kind: kind, Host: f.dest.host, Port: f.dest.port, Address: up.RemoteAddr().String(), Decision: d, Approval: f.approval(),
	}}
	if f.consent.granted != "" {
		p.record.Effect = egress.Allow
	}
	first := p.record
	first.Begins = true
	if err := f.handler.records.add(first, g); err != nil {
		_ = up.Close()
		f.markRecorded()
		return nil, unrecorded(err)
	}
	f.markRecorded()
	return p, nil
}

// forwardBoth copies bytes in both directions until both have ended, and records their number.
func (f *flow) forwardBoth(c *client, up *passage, m *meter, first func() error) {
	err := c.SetReadDeadline(time.Time{})
	if err == nil && first != nil {
		err = first()
	}
	if err == nil {
		err = f.copyBoth(c, up.Conn, m)
	}
	_ = up.Close()
	r := up.record
	r.Took, r.Sent, r.Received = time.Since(f.started), f.traffic.sent.Load(), f.traffic.received.Load()
	f.mu.Lock()
	why := f.killed.why
	f.mu.Unlock()
	switch {
	case errors.Is(err, errSecondName):
		r.Decision = denied(policy.RuleSNI, err.Error())
	case errors.Is(err, errBytes):
		r.Error = err.Error()
	case why != "":
		r.Error = why
	case err != nil:
		r.Error = err.Error()
	}
	if err != nil {
		f.mu.Lock()
		conn := f.conn
		f.mu.Unlock()
		reset(conn)
	}
	// The connection has ended in any case.
	_ = f.handler.records.add(r, up.gen)
}

// copyBoth copies in both directions. It passes on the end of one direction. An error ends both.
func (f *flow) copyBoth(c *client, up net.Conn, m *meter) error {
	// An error in one direction must unblock the other.
	abort := func() {
		_ = up.Close()
		f.mu.Lock()
		conn := f.conn
		f.mu.Unlock()
		reset(conn)
	}
	out := make(chan error, 1)
	go func() {
		err := recoverPanic(func() error {
			err := copyCounted(up, c, func(n int) error { f.traffic.sent.Add(int64(n)); return m.add(n) })
			if err == nil {
				err = closeWrite(up)
			}
			return err
		})
		if err != nil {
			abort()
		}
		out <- err
	}()
	err := copyCounted(c, up, func(n int) error { f.traffic.received.Add(int64(n)); return m.add(n) })
	if err == nil {
		err = c.CloseWrite()
	}
	if err != nil {
		abort()
	}
	if other := <-out; other != nil && (err == nil || errors.Is(other, errBytes)) {
		err = other
	}
	return err
}

// recoverPanic converts a panic to an error, because this process serves other sandboxes too.
func recoverPanic(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("an internal error: %v", p)
		}
	}()
	return do()
}

// errSecondName is returned if a client names another host in its second hello.
var errSecondName = errors.New("the second TLS hello names another host")

// firstFlight forwards a hello and the answer to it. A server may request a second hello, and use
// the name in that one.
func (f *flow) firstFlight(c *client, up net.Conn, m *meter, size int) error {
	if err := f.forward(c, up, m, size); err != nil {
		return err
	}
	var answer [recordHead + 4 + 2 + 32]byte
	n, err := io.ReadFull(up, answer[:])
	if n > 0 {
		f.traffic.received.Add(int64(n))
		if err := m.add(n); err != nil {
			return err
		}
		if _, err := c.Write(answer[:n]); err != nil {
			return err
		}
	}
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // an alert, or nothing: no data follows
		}
		return err
	}
	if answer[0] != recordHandshake || answer[recordHead] != 2 || [32]byte(answer[recordHead+6:]) != sha256.Sum256([]byte("HelloRetryRequest")) {
		return nil
	}
	return f.secondHello(c, up, m)
}

// secondHello forwards what may precede a second hello, and checks that hello.
func (f *flow) secondHello(c *client, up net.Conn, m *meter) error {
	for {
		head, err := c.peek(recordHead)
		if err != nil {
			return err
		}
		n := recordHead + int(binary.BigEndian.Uint16(head[3:]))
		switch {
		case head[0] == recordHandshake:
			h, size, err := readHello(c)
			if err != nil {
				return err
			}
			if f.checkServerName(h) != nil {
				return errSecondName
			}
			return f.forward(c, up, m, size)
		case (head[0] == recordChange || head[0] == recordData) && n <= recordHead+maxRecord+256:
			if err := f.forward(c, up, m, n); err != nil {
				return err
			}
		default:
			return errHello
		}
	}
}

// forward forwards exactly n bytes of the client.
func (f *flow) forward(c *client, up net.Conn, m *meter, n int) error {
	head, err := c.peek(n)
	if err != nil {
		return err
	}
	f.traffic.sent.Add(int64(n))
	if err := m.add(n); err != nil {
		return err
	}
	if _, err := up.Write(head[:n]); err != nil {
		return err
	}
	if c.head = head[n:]; len(c.head) == 0 {
		c.head = nil
	}
	return nil
}

func overBytes(d egress.Decision) *refusal {
	d.Effect, d.Reason, d.Fix = egress.Deny, "the rule's limit of bytes is reached", ""
	return &refusal{status: 429, code: "rate_limited", decision: d}
}
