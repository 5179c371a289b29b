package process

import (
	"net/http/httptest"
	"slices"
	"testing"
)

// recorder records writes and flushes.
type recorder struct {
	*httptest.ResponseRecorder
	calls []string
}

func (w *recorder) Write(b []byte) (int, error) {
	w.calls = append(w.calls, string(b))
	return len(b), nil
}

func (w *recorder) Flush() { w.calls = append(w.calls, "flush") }

// F29: queued events are written together. An event with no event behind it is written at once.
func TestF29QueuedEventsAreWrittenTogether(t *testing.T) {
	w := &recorder{ResponseRecorder: httptest.NewRecorder()}
	a := &batchedWriter{ResponseWriter: w}
	send := func(text string, more bool) {
		a.setMore(more)
		if _, err := a.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		a.Flush()
	}
	send("one", false)
	send("two", true)
	send("three", true)
	send("four", false)
	send("five", false)
	large := string(make([]byte, maxHeld))
	send(large, true)
	send("last", true)
	if err := a.flushHeld(); err != nil {
		t.Fatal(err)
	}
	want := []string{"one", "flush", "twothreefour", "flush", "five", "flush", large, "last"}
	if !slices.Equal(w.calls, want) {
		t.Errorf("got the writes %q, want %q", w.calls, want)
	}
	(*batchedWriter)(nil).setMore(true) // a request that is not served by Handler
}
