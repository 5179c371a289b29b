package v1

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

func (h *auditHandlers) send(c huma.Context, v any) {
	if err := json.NewEncoder(c.BodyWriter()).Encode(v); err != nil {
		h.log.Debug("answer not sent", "err", err)
	}
}

// followEntries streams entries until the client leaves or the server is shutting down. A failure
// ends the stream: its header has been sent.
func (h *auditHandlers) followEntries(c huma.Context, caller sandbox.Principal, f audit.Filter) {
	c.SetHeader("Content-Type", "application/x-ndjson")
	c.SetStatus(http.StatusOK)
	out := newEventStream(c.BodyWriter())
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	// JSON decoders ignore an empty line. The first one shows at once that the stream is open, and
	// later ones serve as heartbeats.
	if out.send("\n") != nil {
		return
	}
	defer out.heartbeat(ctx, cancel, "\n")()
	sendEntry := func(e audit.Entry) error {
		line, err := json.Marshal(toEntry(e))
		if err != nil {
			return err
		}
		f.From = e.Seq + 1
		return out.send(string(line) + "\n")
	}
	var err error
	if f.Sandboxes == nil {
		err = h.auditLog.Read(ctx, f, true, sendEntry)
	} else {
		err = h.followOwned(ctx, caller, &f, sendEntry)
	}
	if err != nil && ctx.Err() == nil {
		h.log.Warn("stream of the audit log ended early", "err", err)
	}
}

// followOwned includes sandboxes that the caller creates while it follows: each new entry is
// checked for its owner.
func (h *auditHandlers) followOwned(ctx context.Context, caller sandbox.Principal, f *audit.Filter, sendEntry func(audit.Entry) error) error {
	if err := h.auditLog.Read(ctx, *f, false, sendEntry); err != nil {
		return err
	}
	cache := owners{finder: h.finder, caller: caller, others: map[string]time.Time{}, owned: map[string]bool{}}
	for _, id := range f.Sandboxes {
		cache.owned[id] = true
	}
	all := *f
	all.Sandboxes, all.Newest, all.Limit = nil, false, 0
	return h.auditLog.Read(ctx, all, true, func(e audit.Entry) error {
		owned, err := cache.has(ctx, e.Sandbox)
		if err != nil || !owned {
			return err
		}
		return sendEntry(e)
	})
}

// owners caches the owners of sandboxes.
type owners struct {
	finder Finder
	caller sandbox.Principal
	owned  map[string]bool
	others map[string]time.Time
}

// recheckAfter is when an unknown owner is looked up again, because the sandbox may not have been
// stored yet.
const recheckAfter = 5 * time.Second

func (o *owners) has(ctx context.Context, id string) (bool, error) {
	if id == "" || o.owned[id] {
		return id != "", nil
	}
	now := time.Now()
	if now.Sub(o.others[id]) < recheckAfter {
		return false, nil
	}
	sb, err := o.finder.Get(ctx, o.caller, id)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return false, err
	}
	// A name of one of the caller's sandboxes may be another sandbox's ID.
	if err == nil && sb.ID == id {
		o.owned[id] = true
		return true, nil
	}
	if len(o.others) > maxOwned {
		clear(o.others)
	}
	o.others[id] = now
	return false, nil
}
