// Package interrupt owns breaking off what does not know of contexts, such as a
// read of a connection, when a context ends.
package interrupt

import (
	"context"
	"sync"
)

// When calls stop in another goroutine when ctx ends. The function that it returns
// cancels that, and reports whether it was in time. If it was not, it returns only
// after stop has returned. The stop function of context.AfterFunc does not wait, so
// stop could then hit the next request on the same connection.
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
