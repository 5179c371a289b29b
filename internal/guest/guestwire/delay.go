package guestwire

import (
	"net/http"
	"strconv"
	"time"
)

// WaitDelayHeader bounds, in whole milliseconds, how long a started command's
// output is still awaited after the command itself has ended. Without it the
// stream ends when nothing holds the output any more, as on E2B.
const WaitDelayHeader = "Crannog-Wait-Delay-Ms"

// maxWaitDelay is the longest that is taken: one week.
const maxWaitDelay = 7 * 24 * time.Hour

// SetWaitDelay asks for a bound, unless d is zero.
func SetWaitDelay(h http.Header, d time.Duration) {
	if d > 0 {
		h.Set(WaitDelayHeader, strconv.FormatInt(max(min(d, maxWaitDelay).Milliseconds(), 1), 10))
	}
}

// WaitDelay returns the bound that a request asks for. Zero is none. A value that
// does not parse is an error and not "none": the caller would wait for ever.
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
