package guestwire

import (
	"encoding/binary"
	"io"
	"net/http"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/fault"
)

// maxRefusal limits the JSON in which a guest reports an error. The JSON has a list without a limit
// of its own, in which three bytes become more than a hundred in memory.
const maxRefusal = 64 << 10

// limitedClient is an HTTP client that limits the size of a guest's errors.
type limitedClient struct{ connect.HTTPClient }

// Do makes a request.
func (w limitedClient) Do(req *http.Request) (*http.Response, error) {
	res, err := w.HTTPClient.Do(req)
	if err != nil {
		return res, err
	}
	body := res.Body
	switch {
	case res.StatusCode != http.StatusOK:
		// A truncated body is not valid JSON. Then only the status is reported.
		res.Body = part{io.LimitReader(body, maxRefusal), body}
	case req.Header.Get("Content-Type") == "application/connect+proto":
		res.Body = part{&pieces{from: body}, body}
	}
	return res, nil
}

type part struct {
	io.Reader
	io.Closer
}

// The first byte of each message of a stream is 1 for a compressed message. Any other bit marks the
// end of the stream, which is JSON.
const messages = 1

// pieces parses the messages of a stream and rejects an end that is too long.
type pieces struct {
	from io.Reader
	head [5]byte // a piece's kind and length
	have int     // bytes of it
	left uint32  // bytes left of the piece's content
}

func (s *pieces) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	for seen := p[:n]; len(seen) > 0; {
		if s.left > 0 {
			k := min(uint32(len(seen)), s.left)
			s.left -= k
			seen = seen[k:]
			continue
		}
		k := copy(s.head[s.have:], seen)
		s.have += k
		seen = seen[k:]
		if s.have < len(s.head) {
			break
		}
		s.have, s.left = 0, binary.BigEndian.Uint32(s.head[1:])
		if s.head[0]&^messages != 0 && s.left > maxRefusal {
			return 0, fault.Newf(fault.Exhausted, "answer_too_large", "the sandbox's refusal is longer than %d bytes", maxRefusal)
		}
	}
	return n, err
}
