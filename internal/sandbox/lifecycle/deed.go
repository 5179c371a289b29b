package lifecycle

import (
	"cmp"
	"context"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// deed is one request of a caller, for the record.
type deed struct {
	s       *Service
	actor   string
	do, ref string
	sandbox string
	began   time.Time
	written bool // that it succeeded
}

// deedCreate is written together with what it makes.
const deedCreate = "create"

// deedKey carries the deed to where it is found out which sandbox it is about
// and where entries name who does something. Nothing is decided by it.
type deedKey struct{}

// deed begins a caller's request.
func (s *Service) deed(ctx context.Context, who sandbox.Principal, do, ref string) (context.Context, *deed) {
	d := &deed{s: s, actor: who.Actor(), do: do, ref: ref, began: time.Now()}
	return context.WithValue(ctx, deedKey{}, d), d
}

// about notes which sandbox a caller's request is about.
func about(ctx context.Context, id string) {
	if d := deedOf(ctx); d != nil && d.sandbox == "" {
		d.sandbox = id
	}
}

func deedOf(ctx context.Context) *deed {
	d, _ := ctx.Value(deedKey{}).(*deed)
	return d
}

// actorOf is who does what happens with this context.
func actorOf(ctx context.Context) string {
	if d := deedOf(ctx); d != nil {
		return d.actor
	}
	return serverActor
}

// done writes what came of a request. It returns the request's error, or the
// record's, in which case the caller takes back what it did.
func (d *deed) done(ctx context.Context, err error) error {
	if err != nil {
		d.failed(err)
		return err
	}
	if d.written {
		return nil
	}
	ctx, cancel := lasting(ctx)
	defer cancel()
	return d.s.book.must(ctx, d.draft(nil))
}

// told is done for what stays done whether or not the record takes it.
func (d *deed) told(ctx context.Context, err error) error {
	if err != nil {
		d.failed(err)
		return err
	}
	d.s.book.anyway(ctx, d.draft(nil))
	return nil
}

func (d *deed) failed(err error) {
	if stranger(err) {
		d.s.book.refused(d.draft(err))
		return
	}
	if lost := d.s.book.soon(d.draft(err)); lost != nil {
		d.s.log.Warn("failed request not in the record", "sandbox", d.sandbox, "err", lost)
	}
}

func (d *deed) draft(err error) audit.Draft {
	a := payload.Action{Do: d.do, Outcome: "ok", TookMS: time.Since(d.began).Milliseconds()}
	if err != nil {
		a.Outcome = cmp.Or(fault.CodeOf(err), string(fault.KindOf(err)))
	}
	if d.ref != d.sandbox {
		a.Ref = d.ref
		if len(a.Ref) > maxRef {
			a.Ref = a.Ref[:maxRef] + "…"
		}
	}
	return audit.Draft{Kind: audit.Action, Sandbox: d.sandbox, Actor: d.actor, Data: a}
}

// maxRef bounds what a caller's words take in the record.
const maxRef = 100
