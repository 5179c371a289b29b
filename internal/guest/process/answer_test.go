package process

import (
	"net/http/httptest"
	"slices"
	"testing"
)

// writes records writes and flushes.
type writes struct {
	*httptest.ResponseRecorder
	seen []string
}

func (w *writes) Write(b []byte) (int, error) {
	w.seen = append(w.seen, string(b))
	return len(b), nil
}

func (w *writes) Flush() { w.seen = append(w.seen, "flush") }

// F29: waiting events are written together, and nothing is held while none waits.
func TestF29EventsGoTogether(t *testing.T) {
	w := &writes{ResponseRecorder: httptest.NewRecorder()}
	a := &answer{ResponseWriter: w}
	send := func(text string, more bool) {
		a.hold(more)
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
	if err := a.spill(); err != nil {
		t.Fatal(err)
	}
	want := []string{"one", "flush", "twothreefour", "flush", "five", "flush", large, "last"}
	if !slices.Equal(w.seen, want) {
		t.Errorf("written: %q", w.seen)
	}
	(*answer)(nil).hold(true) // served without Handler
}
