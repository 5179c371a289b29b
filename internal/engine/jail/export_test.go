package jail

import "github.com/crannog/crannog/internal/engine"

// Abandon stops observing a sandbox without recording anything, as if the process had been killed.
func Abandon(e engine.Engine, id string) {
	f, ok := e.(freezingObserver)
	if !ok {
		return
	}
	b, err := f.freezing.sandboxes.Find(id)
	if err != nil {
		return
	}
	o := b.observer.Swap(nil)
	o.closed.Do(func() {
		close(o.stop)
		o.surveys.Wait()
		o.release()
	})
}
