package process

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// huge is a guest whose first message says that it has a gibibyte.
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

// A guest that somebody inside has replaced cannot fill the server's memory
// with one message.
func TestHugeMessage(t *testing.T) {
	_, err := New(&huge{}, "http://guest", nil).Start(t.Context(), Spec{Cmd: "true"})
	if fault.KindOf(err) != fault.Exhausted {
		t.Errorf("%v", err)
	}
}
