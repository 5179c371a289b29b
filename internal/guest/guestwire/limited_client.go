package guestwire

import (
	"encoding/binary"
	"io"
	"net/http"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/fault"
)

// maxErrorBytes limits the JSON in which a guest reports an error. The JSON has a list without a
// limit of its own. Three bytes of the list become more than a hundred bytes in memory.
const maxErrorBytes = 64 << 10

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
		res.Body = limitedBody{io.LimitReader(body, maxErrorBytes), body}
	case req.Header.Get("Content-Type") == "application/connect+proto":
		res.Body = limitedBody{&messageReader{from: body}, body}
	}
	return res, nil
}

// limitedBody is a body whose reads are limited.
type limitedBody struct {
	io.Reader
	io.Closer
}

// compressedBit is the bit in the first byte of a message of a stream that marks a compressed
// message. Any other bit marks the end of the stream, which is JSON.
const compressedBit = 1

// messageReader parses the messages of a stream and rejects an end that is too long.
type messageReader struct {
	from io.Reader
	head [5]byte // kind and length of a message
	have int     // bytes of head that were read
	left uint32  // bytes of the message that were not read yet
}

// Read implements io.Reader.
func (s *messageReader) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	for data := p[:n]; len(data) > 0; {
		if s.left > 0 {
			k := min(uint32(len(data)), s.left)
			s.left -= k
			data = data[k:]
			continue
		}
		k := copy(s.head[s.have:], data)
		s.have += k
		data = data[k:]
		if s.have < len(s.head) {
			break
		}
		s.have, s.left = 0, binary.BigEndian.Uint32(s.head[1:])
		if s.head[0]&^compressedBit != 0 && s.left > maxErrorBytes {
			return 0, fault.Newf(fault.Exhausted, "answer_too_large", "the sandbox's error is longer than %d bytes", maxErrorBytes)
		}
	}
	return n, err
}
