package lifecycle

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/ingest"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/fault"
)

// serverActor is who does what happens by itself.
const serverActor = "server"

// book writes into the record what the Service does.
type book struct {
	to  audit.Recorder
	log *slog.Logger

	mu     sync.Mutex
	missed uint64 // entries of what had to happen although the record refused
	turned turned
}

// soon writes before something happens that need not wait for the disk.
func (b *book) soon(drafts ...audit.Draft) error { return b.to.Note(drafts...) }

// must writes before something happens that must not happen unrecorded.
func (b *book) must(ctx context.Context, drafts ...audit.Draft) error {
	if err := b.to.Append(ctx, drafts...); err != nil {
		return err
	}
	b.settle(ctx)
	return nil
}

// anyway writes about what happens whether the record takes it or not: a full
// disk must not keep a dangerous box alive. What it does not take is counted,
// and the count is written when the record works again.
func (b *book) anyway(ctx context.Context, drafts ...audit.Draft) {
	ctx, cancel := lasting(ctx)
	defer cancel()
	err := b.must(ctx, drafts...)
	if err == nil {
		return
	}
	b.log.Error("not in the record", "kind", string(drafts[0].Kind), "sandbox", drafts[0].Sandbox, "err", err)
	b.mu.Lock()
	b.missed += uint64(len(drafts))
	b.mu.Unlock()
}

// settle writes how much is missing, once the record works again.
func (b *book) settle(ctx context.Context) {
	b.mu.Lock()
	missed := b.missed
	b.missed = 0
	b.mu.Unlock()
	if missed == 0 {
		return
	}
	err := b.to.Append(ctx, audit.Draft{Kind: audit.Gap, Actor: serverActor, Data: ingest.Gap{
		Lost: missed, Of: "record", Reason: "record_unavailable",
	}})
	if err != nil {
		b.mu.Lock()
		b.missed += missed
		b.mu.Unlock()
	}
}

// turned bounds the entries of requests that were refused.
type turned struct {
	since time.Time
	count int64
}

const (
	turnedEvery = time.Minute
	turnedMost  = 60
)

// refused writes about a request that was turned away, or counts it.
func (b *book) refused(d audit.Draft) {
	now := time.Now()
	b.mu.Lock()
	over := b.turned.over(now)
	b.turned.count++
	full := b.turned.count > turnedMost
	b.mu.Unlock()
	b.turnedAway(over)
	if full {
		return
	}
	if err := b.to.Note(d); err != nil {
		b.mu.Lock()
		b.missed++
		b.mu.Unlock()
	}
}

// over begins a new minute and returns how many of the last had no entry.
func (t *turned) over(now time.Time) int64 {
	if now.Sub(t.since) < turnedEvery {
		return 0
	}
	over := max(t.count-turnedMost, 0)
	*t = turned{since: now}
	return over
}

func (b *book) turnedAway(over int64) {
	if over == 0 {
		return
	}
	d := audit.Draft{Kind: audit.Action, Actor: serverActor, Data: payload.Action{Do: "refused", Outcome: "too_many", Count: over}}
	if err := b.to.Note(d); err != nil {
		b.mu.Lock()
		b.turned.count += over // told with the next
		b.missed++
		b.mu.Unlock()
	}
}

// tick writes what has waited for its time.
func (b *book) tick(ctx context.Context) {
	b.mu.Lock()
	over := b.turned.over(time.Now())
	b.mu.Unlock()
	b.turnedAway(over)
	b.settle(ctx)
}

// Refused writes into the record that a request was turned away at a door, at
// most so many a minute.
func (s *Service) Refused(actor, what, outcome string) {
	const most = 200
	if len(what) > most {
		what = what[:most] + "…"
	}
	s.book.refused(audit.Draft{Kind: audit.Action, Actor: actor, Data: payload.Action{Do: what, Outcome: outcome}})
}

// stranger tells which failures anybody can cause as often as they like.
func stranger(err error) bool {
	switch fault.KindOf(err) {
	case fault.Unauthenticated, fault.Denied, fault.NotFound, fault.Invalid:
		return true
	default:
		return false
	}
}
