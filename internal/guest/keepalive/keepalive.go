// Package keepalive owns how long a stream may be silent before it shows
// that it lives.
package keepalive

import (
	"net/http"
	"strconv"
	"time"
)

// Header is where a client asks for an interval, in seconds.
const Header = "Keepalive-Ping-Interval"

// Intervals: what a client gets that asks for none, and the longest that it
// may ask for.
const (
	Default = 90 * time.Second
	longest = time.Hour
)

// Interval reads what a client asks for. What is no positive number asks for
// nothing.
func Interval(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get(Header))
	if err != nil || seconds <= 0 {
		return Default
	}
	return time.Duration(min(seconds, int(longest/time.Second))) * time.Second
}
