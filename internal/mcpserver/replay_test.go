package mcpserver

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// storedMessages returns the stored messages of a stream after a given one, or the error.
func storedMessages(t *testing.T, r *replay, session, stream string, after int) (string, error) {
	t.Helper()
	var b bytes.Buffer
	for data, err := range r.After(t.Context(), session, stream, after) {
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s;", data)
	}
	return b.String(), nil
}

func store(t *testing.T, r *replay, session, stream string, messages ...string) {
	t.Helper()
	if err := r.Open(t.Context(), session, stream); err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if err := r.Append(t.Context(), session, stream, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReplay(t *testing.T) {
	all := newReplays()
	r := all.key()
	store(t, r, "s", "a", "", "one", "two")
	store(t, r, "s", "b", "else")
	store(t, r, "s", "")
	for _, c := range []struct {
		stream string
		after  int
		want   string
		bad    bool
	}{
		{"a", 0, "one;two;", false},
		{"a", 1, "two;", false},
		{"a", 2, "", false},
		{"a", 1 << 40, "", false},
		{"a", -1, ";one;two;", false},
		{"b", -1, "else;", false},
		{"", -1, "", false},
		{"c", 0, "", true},   // never opened
		{"c", -1, "", false}, // a client that begins to listen
	} {
		got, err := storedMessages(t, r, "s", c.stream, c.after)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("%q after %d: %q %v", c.stream, c.after, got, err)
		}
	}
	// Sessions and keys are separate, whatever the names of their streams are.
	other := all.key()
	for name, at := range map[string]*replay{"x": r, "s": other} {
		if got, err := storedMessages(t, at, name, "a", 0); !errors.Is(err, errNotKept) {
			t.Errorf("the stream of another session or key: %q %v", got, err)
		}
	}
	if err := other.Append(t.Context(), "s", "a", []byte("forged")); !errors.Is(err, errNotKept) {
		t.Errorf("a stream that was not opened: %v", err)
	}
	if err := r.SessionClosed(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if got, err := storedMessages(t, r, "s", "a", 0); err == nil || r.cost != 0 || all.cost != 0 || len(r.streams) != 0 {
		t.Errorf("something is still stored: %q, %d and %d", got, r.cost, all.cost)
	}
	r.close()
	if err := r.Open(t.Context(), "late", "a"); err != nil || len(r.streams) != 0 || len(all.keys) != 1 {
		t.Errorf("stored after the end: %v", err)
	}
}

func TestReplayIsBounded(t *testing.T) {
	all := newReplays()
	all.share, all.total = 100_000, 250_000
	r := all.key()
	check := func() {
		t.Helper()
		sum := 0
		for k := range all.keys {
			n := 0
			for _, e := range k.streams {
				n += e.Value.(*storedStream).cost
			}
			if n != k.cost || n > all.share || k.order.Len() != len(k.streams) {
				t.Fatalf("a key has %d in %d streams, and counts %d in %d", n, len(k.streams), k.cost, k.order.Len())
			}
			sum += n
		}
		if sum != all.cost || sum > all.total {
			t.Fatalf("all have %d and count %d", sum, all.cost)
		}
	}
	// Empty streams and messages are bounded as large ones are.
	for i := range 1000 {
		store(t, r, "s", fmt.Sprint(i))
		check()
	}
	store(t, r, "s", "empty")
	for range 3000 {
		_ = r.Append(t.Context(), "s", "empty", nil) // it is dropped at some point
		check()
	}
	// The most recently used streams stay, and a stream is removed as a whole.
	store(t, r, "s", "old", string(make([]byte, 40_000)), "end")
	store(t, r, "s", "new", string(make([]byte, 40_000)), "end")
	if err := r.Append(t.Context(), "s", "old", []byte("more")); err != nil {
		t.Fatal(err)
	}
	store(t, r, "s", "newer", string(make([]byte, 40_000)))
	check()
	if got, err := storedMessages(t, r, "s", "old", 0); err != nil || got != "end;more;" {
		t.Errorf("the stream used last: %q %v", got, err)
	}
	if got, err := storedMessages(t, r, "s", "new", 0); err == nil {
		t.Errorf("the stream used least: %q", got)
	}
	// A stream that is larger than its share is not stored at all, and does not displace another.
	other := all.key()
	store(t, other, "o", "a", "mine")
	store(t, r, "s", "huge", "begun")
	if err := r.Append(t.Context(), "s", "huge", make([]byte, 200_000)); !errors.Is(err, errNotKept) {
		t.Errorf("a message that does not fit: %v", err)
	}
	check()
	if got, err := storedMessages(t, r, "s", "huge", 0); err == nil {
		t.Errorf("an incomplete stream: %q", got)
	}
	if got, err := storedMessages(t, r, "s", "old", 0); err != nil || got != "end;more;" {
		t.Errorf("another stream: %q %v", got, err)
	}
	for i := range 10 {
		k := all.key()
		for j := range 10 {
			store(t, k, "s", fmt.Sprint(i, j), string(make([]byte, 30_000)))
			check()
		}
	}
	if got, err := storedMessages(t, other, "o", "a", -1); got != "mine;" || err != nil {
		t.Errorf("another key's, after greedy ones: %q %v", got, err)
	}
}

func TestReplayExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newReplays()
		r := all.key()
		store(t, r, "s", "a", "one")
		time.Sleep(keptFor - time.Second)
		store(t, r, "s", "b", "two")
		all.sweep()
		if got, err := storedMessages(t, r, "s", "a", -1); got != "one;" || err != nil {
			t.Errorf("too early: %q %v", got, err)
		}
		time.Sleep(2 * time.Second)
		all.sweep()
		if got, err := storedMessages(t, r, "s", "a", 0); err == nil {
			t.Errorf("too late: %q", got)
		}
		if got, err := storedMessages(t, r, "s", "b", -1); got != "two;" || err != nil {
			t.Errorf("another: %q %v", got, err)
		}
	})
}
