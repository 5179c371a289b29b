// Package keepalive owns how long a stream may be silent before a keepalive is sent.
package keepalive

import (
	"net/http"
	"strconv"
	"time"
)

// Header is the header by which a client requests an interval, in seconds.
const Header = "Keepalive-Ping-Interval"

// Intervals: the default, and the longest that a client may request.
const (
	Default = 90 * time.Second
	longest = time.Hour
)

// Interval returns the interval that a client requests. Anything but a positive number requests the
// default.
func Interval(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get(Header))
	if err != nil || seconds <= 0 {
		return Default
	}
	return time.Duration(min(seconds, int(longest/time.Second))) * time.Second
}
