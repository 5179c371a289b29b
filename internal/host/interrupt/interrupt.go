// Package interrupt owns interrupting operations that do not support contexts, such as a read from
// a connection, when a context ends.
package interrupt

import (
	"context"
	"sync"
)

// When calls interrupt in another goroutine when ctx ends. The returned function release cancels
// that call and reports whether it was in time. If interrupt has been called already, release waits
// until it has returned. The function that context.AfterFunc returns does not wait, so interrupt
// could then hit the next request on the same connection.
func When(ctx context.Context, interrupt func()) (release func() bool) {
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		interrupt()
	})
	return sync.OnceValue(func() bool {
		inTime := cancel()
		if !inTime {
			<-done
		}
		return inTime
	})
}
