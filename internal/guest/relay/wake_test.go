package relay

import (
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// late passes on what it reads only when more arrives, like gVisor with data that a save has moved
// out of a pipe: its readers are not woken.
func late(from, to *os.File) {
	var held []byte
	buf := make([]byte, fullFrame)
	for {
		n, err := from.Read(buf)
		if _, werr := to.Write(held); err != nil || werr != nil {
			return
		}
		held = append(held[:0], buf[:n]...)
	}
}

// A guest that is not nudged answers too.
func TestSilentGuestIsNudged(t *testing.T) {
	f := newFifo(t)
	taken, passed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close(); passed.Close() })
	go late(f.fromHost, passed)
	guest(t, &fifo{fromHost: taken, toHost: f.toHost})

	c := host(t, f)
	conn, err := c.Dial(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A last nudge of the dial may come late, and would release the written data.
	hosttest.Eventually(t, "the dial's nudges end", func() bool { return !nudges() })
	c.reminder.stop()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(3 * reminderInterval)); err != nil {
		t.Fatal(err)
	}
	var got [1]byte
	if _, err := io.ReadFull(conn, got[:]); err == nil {
		t.Fatal("control: the delayed data arrives by itself")
	}
	if err := conn.SetReadDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	c.reminder.mu.Lock()
	c.reminder.over = false
	c.reminder.mu.Unlock()
	c.reminder.wrote()
	if _, err := io.ReadFull(conn, got[:]); err != nil || got[0] != 'x' {
		t.Errorf("%q came back: %v", got, err)
	}
}

// Reminders come after growing pauses, come to an end, and start again after a write.
func TestRemindersGrowRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		var started time.Time
		busy := true
		r := reminder{send: func() bool {
			at = append(at, time.Since(started).Round(reminderInterval))
			return busy
		}}
		after := func(d time.Duration) []time.Duration {
			at, started = nil, time.Now()
			r.wrote()
			time.Sleep(d)
			synctest.Wait()
			return at
		}
		const e = reminderInterval
		want := []time.Duration{e, 3 * e, 7 * e, 15 * e, 31 * e, 63 * e, 127 * e, 255 * e, 511 * e}
		for range 2 {
			if got := after(time.Hour); !slices.Equal(got, want) {
				t.Errorf("reminded after %v", got)
			}
		}
		if got := after(4 * e); !slices.Equal(got, want[:2]) {
			t.Errorf("reminded after %v", got)
		}
		busy = false
		if got := after(time.Hour); !slices.Equal(got, want[:1]) {
			t.Errorf("no caller waits, and it reminds after %v", got)
		}
		r.wrote()
		r.stop()
		if got := after(time.Hour); len(got) > 0 {
			t.Errorf("stopped, and it reminds after %v", got)
		}
	})
}

// nudges reports whether a goroutine of this process is about to nudge.
func nudges() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*Channel).nudging")
}

// unread returns a channel's pipe that is full and has no reader.
func unread(t *testing.T) *fifo {
	t.Helper()
	f := newFifo(t)
	fill(t, f.toGuest)
	return f
}

// No caller waits for a guest that does not read, not even behind another caller.
func TestNudgeDoesNotBlock(t *testing.T) {
	f := unread(t)
	go func() { _, _ = f.toGuest.Write(make([]byte, fullFrame)) }() // until it is closed
	time.Sleep(20 * time.Millisecond)
	nudged := make(chan error, 1)
	go func() { nudged <- RemindGuest(f.toGuest) }()
	select {
	case err := <-nudged:
		if err != nil {
			t.Error(err)
		}
	case <-hosttest.Late():
		t.Error("it waits for room")
	}
}

// If a host cannot write its greeting, it gets an error and no channel.
func TestNoRoomForTheGreeting(t *testing.T) {
	f := unread(t)
	read, write := f.again(t)
	made := make(chan error, 1)
	go func() {
		_, err := NewChannel(read, write)
		made <- err
	}()
	select {
	case err := <-made:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it ended with %v", err)
		}
	case <-hosttest.Late():
		t.Error("it waits for room")
	}
}
