package engine

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

const (
	// defaultEventBytes is the default size limit of a file of events.
	defaultEventBytes = 64 << 20
	// minEventBytes is the smallest limit that a caller can set.
	minEventBytes = 64 << 10
)

// Codes of the faults of Observer.Survey.
const (
	CodeNotWatched = "not_watched"
	CodeEventsFull = "events_full"
)

// CheckEvents fills in the default limit, and refuses a file to which a writer could do more than
// append: a compromised writer must not be able to overwrite earlier events.
func (s *Spec) CheckEvents() error {
	if s.Events == nil {
		return nil
	}
	if s.EventBytes == 0 {
		s.EventBytes = defaultEventBytes
	}
	if s.EventBytes < minEventBytes {
		return fault.Newf(fault.Invalid, "events_too_small", "a file of events needs at least %d bytes, not %d", minEventBytes, s.EventBytes)
	}
	flags, err := unix.FcntlInt(s.Events.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	if flags&unix.O_APPEND == 0 || flags&unix.O_ACCMODE == unix.O_RDONLY {
		return fault.New(fault.Invalid, "events_not_append", "the file of events is not opened for appending")
	}
	return nil
}
