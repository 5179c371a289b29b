package client

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// endlessGuest is a guest whose first message announces a gibibyte.
type endlessGuest struct{ read int64 }

func (h *endlessGuest) Do(*http.Request) (*http.Response, error) {
	head := binary.BigEndian.AppendUint32([]byte{0}, 1<<30)
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/connect+proto"}},
		Body:   io.NopCloser(io.MultiReader(bytes.NewReader(head), h)),
	}, nil
}

func (h *endlessGuest) Read(p []byte) (int, error) {
	if h.read >= 1<<30 {
		return 0, io.EOF
	}
	h.read += int64(len(p))
	return len(p), nil
}

// cannedGuest is a guest whose answer is always the same.
type cannedGuest []byte

func (f cannedGuest) Do(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": req.Header["Content-Type"]},
		Body:   io.NopCloser(bytes.NewReader(f)),
	}, nil
}

// P45: answers that are too long are rejected: an event is at most a few pieces of output long, and
// a list of programs has at most 10,000 entries. Few bytes of a longer list would become much
// memory.
func TestTooLargeAnswersAreRejected(t *testing.T) {
	long := append([]byte{0x7a, 0x80, 0x80, 0x80, 0x01}, make([]byte, 2<<20)...)
	event := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(long))), long...)
	if _, err := New(cannedGuest(event), "http://guest", nil).Start(t.Context(), Spec{Cmd: "true"}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("event of 2 MiB: got %v, want Exhausted", err)
	}
	for n, fits := range map[int]bool{100: true, 10_001: false} {
		got, err := New(cannedGuest(bytes.Repeat([]byte{0x0a, 0}, n)), "http://guest", nil).List(t.Context())
		if fits && (err != nil || len(got) != n) || !fits && fault.CodeOf(err) != "answer_too_large" {
			t.Errorf("list of %d programs: got %d, %v", n, len(got), err)
		}
	}
}

// A guest that root inside has replaced cannot fill the server's memory with one message.
func TestTooLargeMessageIsRejected(t *testing.T) {
	_, err := New(&endlessGuest{}, "http://guest", nil).Start(t.Context(), Spec{Cmd: "true"})
	if fault.KindOf(err) != fault.Exhausted {
		t.Errorf("message of a gibibyte: got %v, want Exhausted", err)
	}
}
