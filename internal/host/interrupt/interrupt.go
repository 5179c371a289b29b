// Package interrupt owns interrupting operations that do not support contexts, such as a read from
// a connection, when a context ends.
package interrupt

import (
	"context"
	"sync"
)

// When calls stop in another goroutine when ctx ends. The returned function cancels that, and
// reports whether it did so before stop was called. Otherwise it returns only after stop has
// returned. The stop function of context.AfterFunc does not wait, so stop could then interrupt the
// next request on the same connection.
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
