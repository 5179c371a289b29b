package relay

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A guest can sleep although there is data to read. When a sandbox's state is saved, gVisor moves
// the pipe's content into its own memory without waking the pipe's readers, until the next byte
// arrives. The host process that started the save may have ended. So a host that waits for a guest
// reminds it.

// reminderInterval is the first pause before a reminder. After the pause maxReminderInterval, there
// are no more reminders.
const (
	reminderInterval    = 200 * time.Millisecond
	maxReminderInterval = time.Minute
)

// RemindGuest makes a guest read its channel. It writes an empty frame, which has no other meaning
// and which any process of the host may write at any time. It does not block: if the pipe is full,
// data that wakes the guest is already there. The pipe must be non-blocking.
func RemindGuest(toGuest *os.File) error {
	raw, err := toGuest.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	// The file's own Write would wait for other writers.
	err = raw.Control(func(fd uintptr) {
		if _, failed = unix.Write(int(fd), make([]byte, frameHeader)); errors.Is(failed, unix.EAGAIN) {
			failed = nil
		}
	})
	return errors.Join(err, failed)
}

// remindRepeatedly reminds the guest repeatedly until stop is called.
func (c *Channel) remindRepeatedly() (stop func()) {
	if c.quiet {
		return func() {}
	}
	ticker := time.NewTicker(reminderInterval)
	done := make(chan struct{})
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				_ = RemindGuest(c.conn.write) // the reader gets the error
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

// sendReminder reminds the guest if streams are open, and reports whether they are.
func (c *Channel) sendReminder() bool {
	c.mu.Lock()
	busy := c.err == nil && c.session != nil && c.session.NumStreams() > 0
	c.mu.Unlock()
	if busy {
		_ = RemindGuest(c.conn.write) // the reader gets the error
	}
	return busy
}

// reminder sends reminders after the last write, with growing pauses. So it soon stops for an idle
// sandbox, even if streams stay open.
type reminder struct {
	send func() bool

	mu      sync.Mutex
	timer   *time.Timer
	pause   time.Duration
	stopped bool
}

// wrote restarts the reminder with the shortest pause.
func (r *reminder) wrote() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause = reminderInterval
	r.arm()
}

// arm starts the pause. r.mu must be held.
func (r *reminder) arm() {
	switch {
	case r.stopped:
	case r.timer == nil:
		r.timer = time.AfterFunc(r.pause, r.fire)
	default:
		r.timer.Reset(r.pause)
	}
}

func (r *reminder) fire() {
	if !r.send() {
		return // the next write starts the reminders again
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pause *= 2; r.pause <= maxReminderInterval {
		r.arm()
	}
}

// stop stops the reminder permanently.
func (r *reminder) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
}
