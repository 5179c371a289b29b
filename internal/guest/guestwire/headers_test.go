package guestwire

import (
	"net/http"
	"testing"
)

// Hangup and Binary read what SetHangup and SetBinary set. Any value except 1 leaves them off.
func TestSwitches(t *testing.T) {
	for name, s := range map[string]struct {
		set func(http.Header, bool)
		get func(http.Header) bool
	}{HangupHeader: {SetHangup, Hangup}, BinaryHeader: {SetBinary, Binary}} {
		on, off := http.Header{}, http.Header{}
		s.set(on, true)
		s.set(off, false)
		if !s.get(on) || s.get(off) || len(off) != 0 {
			t.Errorf("%s: got %v when set and %v when not set, want 1 and no header", name, on, off)
		}
		for _, other := range []string{"0", "true", "", "11"} {
			if s.get(http.Header{name: {other}}) {
				t.Errorf("%s: %q switches it on", name, other)
			}
		}
	}
}
