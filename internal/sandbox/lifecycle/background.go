package lifecycle

import (
	"context"
	"sync"

	"github.com/crannog/crannog/internal/host/lockorder"
)

// background runs work of a Service for which no request waits. Close waits for its end.
type background struct {
	ctx  context.Context // ends when Close begins to wait
	stop context.CancelFunc

	mu    lockorder.Mutex[rankBackground]
	group sync.WaitGroup
}

func newBackground() *background {
	b := &background{}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// start runs do in the background, unless the context has ended, and reports whether it started.
func (b *background) start(do func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return false
	}
	b.group.Go(do)
	return true
}

// ended reports whether the context has ended.
func (b *background) ended() bool { return b.ctx.Err() != nil }

// close ends the context and waits for all running work.
func (b *background) close() {
	b.mu.Lock() // so that nothing starts between here and Wait
	b.stop()
	b.mu.Unlock()
	b.group.Wait()
}
