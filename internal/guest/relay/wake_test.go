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

// delay forwards data only when more data arrives. gVisor does the same with data that it has moved
// out of a pipe while saving the state, because it wakes no reader.
func delay(from, to *os.File) {
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

// A reminder wakes a guest that has missed data.
func TestSilentGuestIsReminded(t *testing.T) {
	f := newFifo(t)
	taken, passed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close(); passed.Close() })
	go delay(f.fromHost, passed)
	guest(t, &fifo{fromHost: taken, toHost: f.toHost})

	c := host(t, f)
	conn, err := c.Dial(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A late reminder of the dial would forward the written data.
	hosttest.Eventually(t, "the dial sends no more reminders", func() bool { return !reminding() })
	c.reminder.stop()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(3 * reminderInterval)); err != nil {
		t.Fatal(err)
	}
	var got [1]byte
	if _, err := io.ReadFull(conn, got[:]); err == nil {
		t.Fatal("control: the delayed data arrived without a reminder")
	}
	if err := conn.SetReadDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	c.reminder.mu.Lock()
	c.reminder.stopped = false
	c.reminder.mu.Unlock()
	c.reminder.wrote()
	if _, err := io.ReadFull(conn, got[:]); err != nil || got[0] != 'x' {
		t.Errorf("data after a reminder: got %q, %v, want x", got, err)
	}
}

// The pauses between reminders grow. The reminders end, and start again after a write.
func TestPausesBetweenRemindersGrow(t *testing.T) {
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
				t.Errorf("got reminders after %v, want %v", got, want)
			}
		}
		if got := after(4 * e); !slices.Equal(got, want[:2]) {
			t.Errorf("got reminders after %v, want %v", got, want[:2])
		}
		busy = false
		if got := after(time.Hour); !slices.Equal(got, want[:1]) {
			t.Errorf("without streams: got reminders after %v, want %v", got, want[:1])
		}
		r.wrote()
		r.stop()
		if got := after(time.Hour); len(got) > 0 {
			t.Errorf("after stop: got reminders after %v", got)
		}
	})
}

// reminding reports whether a dial of this process sends reminders.
func reminding() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*Channel).remindRepeatedly")
}

// fullFifo returns pipes of which the one to the guest is full and has no reader.
func fullFifo(t *testing.T) *fifo {
	t.Helper()
	f := newFifo(t)
	fill(t, f.toGuest)
	return f
}

// RemindGuest does not block if the guest does not read, even while another write is blocked.
func TestReminderDoesNotBlock(t *testing.T) {
	f := fullFifo(t)
	go func() { _, _ = f.toGuest.Write(make([]byte, fullFrame)) }() // blocks until the pipe is closed
	time.Sleep(20 * time.Millisecond)
	done := make(chan error, 1)
	go func() { done <- RemindGuest(f.toGuest) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-hosttest.Late():
		t.Error("the call blocks while the pipe is full")
	}
}

// NewChannel returns an error if it cannot write the greeting.
func TestNewChannelWithFullPipeFails(t *testing.T) {
	f := fullFifo(t)
	read, write := f.open(t)
	done := make(chan error, 1)
	go func() {
		_, err := NewChannel(read, write)
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want os.ErrDeadlineExceeded", err)
		}
	case <-hosttest.Late():
		t.Error("the call blocks while the pipe is full")
	}
}
