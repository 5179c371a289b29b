package lifecycle

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/host/lockorder"
	"github.com/crannog/crannog/internal/sandbox"
)

// liveSandbox is a running sandbox that this process watches.
type liveSandbox struct {
	id     string
	gone   chan struct{} // closed when it stops
	cancel context.CancelFunc

	// The fields below are guarded by liveSandboxes.mu.

	row    sandbox.Row
	ending bool // its deadline is being executed
	// notBefore is the time of the next check of the deadline, if that is later than the sandbox's
	// end.
	notBefore time.Time
	endUnsent bool // the guest was not sent the latest end yet
	samples   ring
}

// hasEnded reports whether the sandbox, or this instance of it, has ended.
func (b *liveSandbox) hasEnded() bool {
	select {
	case <-b.gone:
		return true
	default:
		return false
	}
}

// nextDeadline returns when a deadline requires action. Zero means that there is no deadline.
func (b *liveSandbox) nextDeadline() time.Time {
	end := b.row.EndAt
	if !end.IsZero() && b.notBefore.After(end) {
		return b.notBefore
	}
	return end
}

// liveSandboxes holds the running sandboxes that this process watches.
type liveSandboxes struct {
	mu        lockorder.RWMutex[rankLive]
	all       map[string]*liveSandbox
	ephemeral map[string]bool  // ephemeral sandboxes that end with this process
	delays    map[string]delay // of failed pauses
}

// delay is the delay of a failed pause.
type delay struct {
	tries int
	until time.Time
}

func newLiveSandboxes() *liveSandboxes {
	return &liveSandboxes{all: make(map[string]*liveSandbox), ephemeral: make(map[string]bool), delays: make(map[string]delay)}
}

// add adds a sandbox unless one with its ID exists, if watch starts to watch it.
func (l *liveSandboxes) add(b *liveSandbox, watch func() bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.notBefore = l.delays[b.id].until
	if l.all[b.id] != nil || !watch() {
		return false
	}
	l.all[b.id] = b
	return true
}

// remove forgets a sandbox and closes its channel, so that proxies abort streams.
func (l *liveSandboxes) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.all[id]; b != nil {
		delete(l.all, id)
		close(b.gone)
		b.cancel()
	}
}

// release forgets all sandboxes without ending them.
func (l *liveSandboxes) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, b := range l.all {
		delete(l.all, id)
		close(b.gone)
	}
}

// get returns a sandbox if this process watches it.
func (l *liveSandboxes) get(id string) (sandbox.Sandbox, bool) {
	b, r := l.find(id)
	return r.Sandbox, b != nil
}

// find returns a sandbox and its row if this process watches it, or nil.
func (l *liveSandboxes) find(id string) (*liveSandbox, sandbox.Row) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if b := l.all[id]; b != nil {
		return b, b.row
	}
	return nil, sandbox.Row{}
}

// list returns all sandboxes.
func (l *liveSandboxes) list() []*liveSandbox {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Collect(maps.Values(l.all))
}

// current returns the row of a sandbox, and reports whether it is still watched.
func (l *liveSandboxes) current(b *liveSandbox) (sandbox.Row, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return b.row, l.all[b.id] == b
}

// update changes this process's copy of the row of a sandbox that is watched.
func (l *liveSandboxes) update(id string, change func(*sandbox.Row)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.all[id]; b != nil {
		change(&b.row)
	}
}

// compare reports whether the sandbox of a row is watched, whether its known instance and end match
// the row, and whether its policy differs.
func (l *liveSandboxes) compare(r sandbox.Row) (watched, same, policyChanged bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	b := l.all[r.ID]
	if b == nil {
		return false, false, false
	}
	same = b.row.Run == r.Run && (b.ending || b.row.EndAt.Equal(r.EndAt) && !b.endUnsent)
	return true, same, b.row.PolicyDigest != r.PolicyDigest
}

// addSample adds a reading, unless its time is not after that of the previous one: the usage
// between the two could not be computed.
func (l *liveSandboxes) addSample(b *liveSandbox, usage engine.Usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if usage.At.After(b.samples.last.At) {
		b.samples.add(usage, b.row.Limits)
	}
}

// samples returns the samples of a time span.
func (l *liveSandboxes) samples(b *liveSandbox, from, to time.Time) []sandbox.Metric {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return b.samples.between(from, to)
}

// addEphemeral marks a sandbox as ending with this process.
func (l *liveSandboxes) addEphemeral(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ephemeral[id] = true
}

// ephemeralIDs returns the sandboxes that end with this process.
func (l *liveSandboxes) ephemeralIDs() []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Collect(maps.Keys(l.ephemeral))
}

// forget drops the state of a sandbox that was removed.
func (l *liveSandboxes) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ephemeral, id)
	delete(l.delays, id)
}
