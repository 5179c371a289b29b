// Package interrupt owns breaking off what does not know of contexts, such as a
// read of a connection, when a context ends.
package interrupt

import (
	"context"
	"sync"
)

// When has stop called, in another goroutine, when ctx ends. What it returns
// takes that back and tells whether it came in time. If not, it returns after
// stop has: context.AfterFunc lets both go on side by side, and what is stopped
// then may be whatever comes next on the same connection.
func When(ctx context.Context, stop func()) (over func() bool) {
	done := make(chan struct{})
	take := context.AfterFunc(ctx, func() {
		defer close(done)
		stop()
	})
	return sync.OnceValue(func() bool {
		inTime := take()
		if !inTime {
			<-done
		}
		return inTime
	})
}
