package client

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// huge is a guest whose first message announces a gibibyte.
type huge struct{ read int64 }

func (h *huge) Do(*http.Request) (*http.Response, error) {
	head := binary.BigEndian.AppendUint32([]byte{0}, 1<<30)
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/connect+proto"}},
		Body:   io.NopCloser(io.MultiReader(bytes.NewReader(head), h)),
	}, nil
}

func (h *huge) Read(p []byte) (int, error) {
	if h.read >= 1<<30 {
		return 0, io.EOF
	}
	h.read += int64(len(p))
	return len(p), nil
}

// fixed is a guest whose body is always the same.
type fixed []byte

func (f fixed) Do(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": req.Header["Content-Type"]},
		Body:   io.NopCloser(bytes.NewReader(f)),
	}, nil
}

// P45: an event is never longer than a few pieces of output, and a list of programs never has
// millions of entries: few bytes would become much memory.
func TestLargeAnswers(t *testing.T) {
	long := append([]byte{0x7a, 0x80, 0x80, 0x80, 0x01}, make([]byte, 2<<20)...)
	event := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(long))), long...)
	if _, err := New(fixed(event), "http://guest", nil).Start(t.Context(), Spec{Cmd: "true"}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("an event: %v", err)
	}
	for n, fits := range map[int]bool{100: true, 10_001: false} {
		got, err := New(fixed(bytes.Repeat([]byte{0x0a, 0}, n)), "http://guest", nil).List(t.Context())
		if fits && (err != nil || len(got) != n) || !fits && fault.CodeOf(err) != "answer_too_large" {
			t.Errorf("%d programs: %d, %v", n, len(got), err)
		}
	}
}

// A guest that root inside has replaced cannot fill the server's memory with one message.
func TestHugeMessage(t *testing.T) {
	_, err := New(&huge{}, "http://guest", nil).Start(t.Context(), Spec{Cmd: "true"})
	if fault.KindOf(err) != fault.Exhausted {
		t.Errorf("%v", err)
	}
}
