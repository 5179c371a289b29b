// Package keepalive owns the interval after which a keepalive is sent on a silent stream.
package keepalive

import (
	"net/http"
	"strconv"
	"time"
)

// Header is the header by which a client requests an interval, in seconds.
const Header = "Keepalive-Ping-Interval"

// Default is the default interval, and maxInterval the longest that a client may request.
const (
	Default     = 90 * time.Second
	maxInterval = time.Hour
)

// Interval returns the interval that a client requests, or the default if the header is not a
// positive number.
func Interval(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get(Header))
	if err != nil || seconds <= 0 {
		return Default
	}
	return time.Duration(min(seconds, int(maxInterval/time.Second))) * time.Second
}
