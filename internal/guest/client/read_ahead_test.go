package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// F29: data that is read during a call is sent together in the next one. With a call for each read,
// it took two minutes to send what a pipe carries in one second.
func TestF29InputIsSentTogether(t *testing.T) {
	all := bytes.Repeat([]byte("0123456789abcdef"), 3*piece/16)
	a := readAhead(t.Context(), bytes.NewReader(all), piece)
	defer a.stop()
	var got []byte
	for i := range 3 {
		hosttest.Eventually(t, "exactly one piece is read ahead", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return len(a.held) == piece
		})
		data, err := a.next()
		if len(data) != piece || err != nil && i < 2 {
			t.Fatalf("piece of input: got %d bytes, %v, want %d", len(data), err, piece)
		}
		got = append(got, data...)
	}
	if data, err := a.next(); len(data) != 0 || !errors.Is(err, io.EOF) || !bytes.Equal(got, all) {
		t.Errorf("at the end %d bytes, %v", len(data), err)
	}
}

// A caller whose context ends does not wait for a reader that never returns.
func TestF29ReadAheadEndsWithContext(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	a := readAhead(ctx, r, piece)
	defer a.stop()
	cancel()
	if data, err := a.next(); len(data) != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("next after the end of the context: got %q, %v, want Canceled", data, err)
	}
}
