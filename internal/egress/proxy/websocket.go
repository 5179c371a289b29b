package proxy

import (
	"io"
	"net/http"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
)

// switched forwards a WebSocket in both directions, after the upstream has agreed to it. A server
// that ignores the upgrade would otherwise read requests about which the policy did not decide.
func (x *exchange) switched(resp *http.Response) *refusal {
	up, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || !x.action.upgrade || len(resp.Header["Upgrade"]) != 1 || !isWebSocket(resp.Header["Upgrade"][0]) {
		return floor(http.StatusBadGateway, "upstream_protocol", policy.RuleProtocol, "the server switched to a protocol that was not requested")
	}
	if x.masked() && len(resp.Header["Sec-Websocket-Extensions"]) > 0 {
		// Redaction could not find an echo of a secret in compressed data.
		return floor(http.StatusBadGateway, "upstream_encoding", policy.RuleProtocol, "the server compresses, although that was not offered")
	}
	dropHops(resp.Header)
	dropMisleading(resp.Header)
	h := x.w.Header()
	for name, values := range resp.Header {
		if x.masked() && x.gen.inName(name) {
			continue
		}
		for i := range values {
			if x.masked() {
				values[i] = x.gen.text.String(values[i])
			}
		}
		h[name] = values
	}
	h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	x.w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buffered, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		x.record.Error = err.Error()
		panic(http.ErrAbortHandler)
	}
	// The flow ends together with the WebSocket.
	defer x.flow.end()
	defer conn.Close()
	raw := x.flow.connection()
	end := func() {
		reset(raw)
		_ = up.Close()
	}
	if !x.onStop(end) {
		end()
	}
	out := make(chan error, 1)
	go func() {
		err := recoverPanic(func() error {
			return copyCounted(up, buffered, func(n int) error { x.traffic.sent.Add(int64(n)); return x.count(n) })
		})
		_ = up.Close()
		out <- err
	}()
	if err = x.fromWebSocket(conn, up); err != nil {
		end()
	}
	// Close without reset, because the last frames may still be on their way.
	_ = conn.Close()
	_ = up.Close()
	if other := <-out; err == nil {
		err = other
	}
	if err != nil && x.record.Error == "" {
		x.record.Error = err.Error()
	}
	return nil
}

func isWebSocket(protocol string) bool { return strings.EqualFold(protocol, "websocket") }

func (x *exchange) fromWebSocket(conn io.Writer, up io.Reader) error {
	count := func(n int) error { x.traffic.received.Add(int64(n)); return x.count(n) }
	if !x.masked() {
		return copyCounted(conn, up, count)
	}
	w := x.handler.current.Load().bytes.Writer(conn)
	if err := copyCounted(w, up, count); err != nil {
		return err
	}
	return w.Close()
}
