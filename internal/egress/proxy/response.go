package proxy

import (
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
)

// masked reports whether the response comes from a host that may know a secret, so that it must be
// redacted.
func (x *exchange) masked() bool { return x.gen.masked[x.dest.host] || len(x.secrets) > 0 }

// inName reports whether the name of a header or trailer contains a secret. The sandbox would
// receive the name in another case, in which redaction of values would not find it.
func (g *generation) inName(name string) bool {
	return g.bytes.InName(name) || g.text.String(name) != name
}

// dropMisleading removes response headers that would let the sandbox bypass the gateway, or that
// mention a proxy.
func dropMisleading(h http.Header) {
	delete(h, "Alt-Svc")
	for name := range h {
		if strings.HasPrefix(name, "Proxy-") {
			delete(h, name)
		}
	}
}

// answer passes on a response.
func (x *exchange) answer(resp *http.Response) *refusal {
	dropHops(resp.Header)
	dropMisleading(resp.Header)
	source := io.Reader(resp.Body)
	length := resp.ContentLength
	var m masks
	if x.masked() {
		if stop := refusePiece(resp); stop != nil {
			return stop
		}
		if len(resp.Header["Accept-Ranges"]) > 0 {
			resp.Header["Accept-Ranges"] = []string{"none"} // they would have no effect
		}
		decoded, stop := x.readable(resp)
		if stop != nil {
			return stop
		}
		if decoded != nil {
			source, length = decoded, -1
			resp.Header.Del("Content-Length")
		}
		// Use the newest values too, because the response may echo one that was set after the
		// request was sent.
		g := x.handler.current.Load()
		for _, each := range []*generation{x.gen, g} {
			for name, values := range resp.Header {
				for i := range values {
					values[i] = each.text.String(values[i])
				}
				if each.inName(name) {
					delete(resp.Header, name)
				}
			}
		}
		m = x.masks(g)
	}
	source = x.advertises(resp, source)
	h := x.w.Header()
	maps.Copy(h, resp.Header)
	x.w.WriteHeader(resp.StatusCode)
	// Each piece of a stream is passed on as it arrives.
	err := x.copyBody(source, m, length < 0)
	if err != nil {
		x.record.Error = err.Error()
		// End with an error, so that the response does not seem to be complete.
		panic(http.ErrAbortHandler)
	}
	g := x.handler.current.Load()
	for name, values := range resp.Trailer {
		if x.masked() && (g.inName(name) || x.gen.inName(name)) {
			continue
		}
		for _, v := range values {
			if x.masked() {
				v = g.text.String(x.gen.text.String(v))
			}
			h.Add(http.TrailerPrefix+name, v)
		}
	}
	return nil
}

// readable returns a decoded body for an encoding in which redaction could not find an echo. It
// returns nil if the body needs no decoding.
func (x *exchange) readable(resp *http.Response) (io.Reader, *refusal) {
	var codings []string
	for _, line := range resp.Header["Content-Encoding"] {
		for c := range strings.SplitSeq(line, ",") {
			if c = strings.ToLower(strings.TrimSpace(c)); c != "" && c != "identity" {
				codings = append(codings, c)
			}
		}
	}
	switch {
	case len(codings) == 0 || resp.ContentLength == 0 || x.action.method == http.MethodHead || resp.Body == http.NoBody:
		return nil, nil
	case len(codings) == 1 && (codings[0] == "gzip" || codings[0] == "x-gzip"):
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			r := floor(http.StatusBadGateway, "upstream_encoding", policy.RuleProtocol, "the answer is not in the encoding that it names")
			r.cause = err
			return nil, r
		}
		resp.Header.Del("Content-Encoding")
		return z, nil
	default:
		return nil, floor(http.StatusBadGateway, "upstream_encoding", policy.RuleProtocol,
			"the response has an encoding in which a secret could not be redacted, although none was requested")
	}
}

// errShortAnswer is returned if the sandbox accepted less data than was sent.
var errShortAnswer = errors.New("the program did not accept the response")

func (x *exchange) copyBody(source io.Reader, m masks, flush bool) error {
	buf := largeBuffers.Get().(*[largeBuffer]byte)
	defer largeBuffers.Put(buf)
	var out []byte
	if len(m) > 0 {
		room := largeBuffers.Get().(*[largeBuffer]byte)
		defer largeBuffers.Put(room)
		out = room[:0]
	}
	flusher := http.NewResponseController(x.w)
	for {
		n, err := source.Read(buf[:largeBuffer/2])
		piece := buf[:n]
		if len(m) > 0 {
			out = m.mask(out[:0], piece, err != nil)
			piece = out
		}
		if len(piece) > 0 {
			x.traffic.received.Add(int64(len(piece)))
			if err := x.count(len(piece)); err != nil {
				return err
			}
			if _, err := x.w.Write(piece); err != nil {
				return errShortAnswer
			}
			if flush {
				if err := flusher.Flush(); err != nil {
					return errShortAnswer
				}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
