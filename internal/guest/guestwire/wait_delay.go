package guestwire

import (
	"net/http"
	"strconv"
	"time"
)

// WaitDelayHeader limits, in whole milliseconds, how long to wait for a command's output after the
// command has ended. Without it the stream ends when no process holds the output open, as on E2B.
const WaitDelayHeader = "Crannog-Wait-Delay-Ms"

// maxWaitDelay is the maximum: one week.
const maxWaitDelay = 7 * 24 * time.Hour

// SetWaitDelay sets the header, unless d is zero.
func SetWaitDelay(h http.Header, d time.Duration) {
	if d > 0 {
		h.Set(WaitDelayHeader, strconv.FormatInt(max(min(d, maxWaitDelay).Milliseconds(), 1), 10))
	}
}

// WaitDelay returns the requested limit. Zero means none. An invalid value is an error, because a
// caller without a limit could wait for ever.
func WaitDelay(h http.Header) (time.Duration, error) {
	text := h.Get(WaitDelayHeader)
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseUint(text, 10, 63)
	if err != nil || ms == 0 || ms > uint64(maxWaitDelay.Milliseconds()) {
		return 0, strconv.ErrRange
	}
	return time.Duration(ms) * time.Millisecond, nil
}
