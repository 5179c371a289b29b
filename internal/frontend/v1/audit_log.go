package v1

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/sandbox"
)

// AuditLog reads the audit log; audit.Log implements it.
type AuditLog interface {
	Read(ctx context.Context, f audit.Filter, follow bool, yield func(audit.Entry) error) error
	Checkpoint(ctx context.Context) (audit.Checkpoint, error)
	Key() string
	Verify(ctx context.Context, against ...string) (audit.Verification, error)
	Prove(ctx context.Context, seq int64) (audit.Proof, error)
	Export(ctx context.Context, w io.Writer, f audit.Filter) error
}

// auditHandlers serves the audit log.
type auditHandlers struct {
	finder   Finder
	auditLog AuditLog
	log      *slog.Logger
}

func (h *auditHandlers) register(r *registry) {
	if h.auditLog == nil {
		return
	}
	h.registerAt(r, "audit", "tree-head", false)
	h.registerAt(r, "record", "checkpoint", true)
}

// registerAt adds the operations below a path. "record" is the path of earlier versions, which
// clients still use.
func (h *auditHandlers) registerAt(r *registry, name, head string, deprecated bool) {
	at := func(what, method, path, summary string) huma.Operation {
		o := op(name+"-"+what, method, "/"+name+path, summary)
		o.Deprecated = deprecated
		return o
	}
	read := at("read", "GET", "", "Read or follow entries of the audit log")
	read.Description = "Entries of the audit log, the oldest first. A key sees those of its own sandboxes; local callers see all."
	register(r, read, h.readEntries)
	register(r, at(head, "GET", "/"+head, "Get the newest signed tree head of the audit log"), h.checkpoint)
	register(r, local(at("key", "GET", "/key", "Get the public key that verifies signed tree heads")), h.publicKey)
	register(r, local(at("verify", "POST", "/verify", "Verify the whole audit log")), h.verifyLog)
	register(r, local(at("prove", "GET", "/{seq}/proof", "Prove that one entry is in the audit log")), h.proveEntry)
	register(r, local(at("export", "GET", "/export", "Export entries that can be verified without the server")), h.exportEntries)
}

func local(o huma.Operation) huma.Operation {
	o.Description = "Local callers only."
	return o
}

// EntryFilter selects entries in a query.
type EntryFilter struct {
	Sandbox string    `query:"sandbox" maxLength:"64" doc:"Only entries of this sandbox, by ID or name."`
	Kind    string    `query:"kind" maxLength:"1024" doc:"Only entries of these kinds, separated by commas; the part before the dot stands for the whole group."`
	Since   time.Time `query:"since" doc:"Only from this time on."`
	Until   time.Time `query:"until" doc:"Only before this time."`
	After   int64     `query:"after" minimum:"-1" default:"-1" doc:"Only with a greater seq."`
}

const (
	defaultEntries = 100
	maxEntries     = 1000
)

type readEntriesInput struct {
	EntryFilter
	Limit  int    `query:"limit" minimum:"0" maximum:"1000" doc:"Maximum of entries; 100 if absent. When following, only with newest."`
	Cursor string `query:"cursor" maxLength:"20" doc:"next_cursor of the previous page."`
	Newest bool   `query:"newest" doc:"The last entries instead of the first, the oldest of them first."`
	Before int64  `query:"before" minimum:"0" doc:"Only with a smaller seq; with newest, the page before this entry. Not when following."`
	Follow bool   `query:"follow" doc:"Stream entries as NDJSON, and continue with new ones."`
}

type entriesOutput struct {
	ContentType string `header:"Content-Type"`
	Body        func(huma.Context)
}

func (h *auditHandlers) readEntries(ctx context.Context, caller sandbox.Principal, in *readEntriesInput) (*entriesOutput, error) {
	f, err := h.filterOf(ctx, caller, in.EntryFilter)
	if err != nil {
		return nil, err
	}
	if in.Cursor != "" {
		from, err := strconv.ParseInt(in.Cursor, 10, 64)
		if err != nil || from < 0 {
			return nil, fault.New(fault.Invalid, "invalid_cursor", "the cursor was not issued by this server")
		}
		f.From = max(f.From, from)
	}
	f.Limit, f.Newest, f.Before = in.Limit, in.Newest, in.Before
	if f.Limit == 0 {
		f.Limit = defaultEntries
	}
	if in.Follow {
		if in.Before != 0 {
			return nil, fault.New(fault.Invalid, "before_and_follow", "follow and before exclude each other")
		}
		if !in.Newest {
			f.Limit = 0
		}
		return &entriesOutput{"application/x-ndjson", func(c huma.Context) { h.followEntries(c, caller, f) }}, nil
	}
	list, err := h.listEntries(ctx, f)
	if err != nil {
		return nil, err
	}
	return &entriesOutput{"application/json", func(c huma.Context) { h.send(c, list) }}, nil
}

// listEntries reads one page, and one entry more to find out whether there is another page.
func (h *auditHandlers) listEntries(ctx context.Context, f audit.Filter) (api.EntryList, error) {
	list, limit := api.EntryList{Entries: []api.Entry{}}, f.Limit
	if !f.Newest {
		f.Limit++
	}
	err := h.auditLog.Read(ctx, f, false, func(e audit.Entry) error {
		if len(list.Entries) == limit {
			list.NextCursor = strconv.FormatInt(e.Seq, 10)
			return nil
		}
		list.Entries = append(list.Entries, toEntry(e))
		return nil
	})
	return list, err
}

// filterOf returns a filter for the entries that the caller may see and the query selects.
func (h *auditHandlers) filterOf(ctx context.Context, caller sandbox.Principal, in EntryFilter) (audit.Filter, error) {
	f := audit.Filter{Since: in.Since, Until: in.Until, From: in.After + 1, Kinds: kindsOf(in.Kind)}
	if in.Sandbox != "" {
		sb, err := h.finder.Get(ctx, caller, in.Sandbox)
		// The audit log outlives sandboxes, for callers who may see all of it.
		if fault.KindOf(err) == fault.NotFound && caller.Local && ids.ValidSandbox(in.Sandbox) {
			sb, err = sandbox.Sandbox{ID: in.Sandbox}, nil
		}
		f.Sandbox = sb.ID
		return f, err
	}
	if caller.Local {
		return f, nil
	}
	var err error
	f.Sandboxes, err = h.owned(ctx, caller)
	return f, err
}

// maxOwned bounds the list of sandboxes to search for.
const maxOwned = 10_000

// owned returns the IDs of all known sandboxes of a key.
func (h *auditHandlers) owned(ctx context.Context, caller sandbox.Principal) ([]string, error) {
	out := []string{}
	q := sandbox.Filter{Ascending: true}
	for {
		page, err := h.finder.List(ctx, caller, q)
		if err != nil {
			return nil, err
		}
		for _, sb := range page.Sandboxes {
			out = append(out, sb.ID)
			q.AfterTime, q.AfterID = sb.StartedAt, sb.ID
		}
		if !page.More || len(page.Sandboxes) == 0 {
			return out, nil
		}
		if len(out) > maxOwned {
			return nil, fault.Newf(fault.Invalid, "too_many_sandboxes", "there are more than %d sandboxes of this key", maxOwned).
				WithHint("name one with sandbox=")
		}
	}
}

// kindsOf parses a list of kinds and groups of kinds.
func kindsOf(text string) []audit.Kind {
	var out []audit.Kind
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		out = append(out, audit.Kind(name))
		for _, k := range audit.Kinds {
			if group, _, dotted := strings.Cut(string(k), "."); dotted && group == name {
				out = append(out, k)
			}
		}
	}
	return out
}

func toEntry(e audit.Entry) api.Entry {
	return api.Entry{
		Seq: e.Seq, Time: e.Time, Prev: e.Prev, Kind: string(e.Kind), Sandbox: e.Sandbox, Actor: e.Actor,
		Data: e.Data, Source: e.Source, At: e.At,
	}
}

func toCheckpoint(c audit.Checkpoint) api.Checkpoint {
	return api.Checkpoint{Size: c.Size, Root: c.Root, Note: c.Note}
}
