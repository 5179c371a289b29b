package crannog

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
)

// RecordOptions select entries of the audit log. The zero value selects all that the caller may
// see.
type RecordOptions struct {
	Sandbox string   // ID or name
	Kinds   []string // any of these; "sandbox" stands for the whole group
	// Since is inclusive and Until is not.
	Since, Until time.Time
	From         int64 // number of the first entry
	// Newest, if set, is the number of last entries to begin with, instead of the first.
	Newest int
	Follow bool // continue with new entries until the context ends
}

func (o RecordOptions) query() url.Values {
	q := url.Values{}
	if o.Sandbox != "" {
		q.Set("sandbox", o.Sandbox)
	}
	if len(o.Kinds) > 0 {
		q.Set("kind", strings.Join(o.Kinds, ","))
	}
	if !o.Since.IsZero() {
		q.Set("since", o.Since.UTC().Format(time.RFC3339Nano))
	}
	if !o.Until.IsZero() {
		q.Set("until", o.Until.UTC().Format(time.RFC3339Nano))
	}
	if o.From > 0 {
		q.Set("after", strconv.FormatInt(o.From-1, 10))
	}
	if o.Newest > 0 {
		q.Set("newest", "true")
		q.Set("limit", strconv.Itoa(o.Newest))
	}
	if o.Follow {
		q.Set("follow", "true")
	}
	return q
}

// recordPage is the number of entries in one request.
const recordPage = "1000"

// Record reads the audit log, the oldest entry first. After an error the iteration ends.
func (c *Client) Record(ctx context.Context, o RecordOptions) iter.Seq2[api.Entry, error] {
	return func(yield func(api.Entry, error) bool) {
		if err := c.readRecord(ctx, o, func(e api.Entry) bool { return yield(e, nil) }); err != nil {
			yield(api.Entry{}, err)
		}
	}
}

func (c *Client) readRecord(ctx context.Context, o RecordOptions, yield func(api.Entry) bool) error {
	q := o.query()
	if o.Follow {
		return c.followRecord(ctx, q, yield)
	}
	if o.Newest == 0 {
		q.Set("limit", recordPage)
	}
	for {
		var page api.EntryList
		if err := c.call(ctx, http.MethodGet, "/record?"+q.Encode(), nil, &page); err != nil {
			return err
		}
		for _, e := range page.Entries {
			if !yield(e) {
				return nil
			}
		}
		if page.NextCursor == "" {
			return nil
		}
		q.Set("cursor", page.NextCursor)
	}
}

func (c *Client) followRecord(ctx context.Context, q url.Values, yield func(api.Entry) bool) error {
	resp, err := c.open(ctx, "/record?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var e api.Entry
		switch err := in.Decode(&e); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return unreachableError(err)
		}
		if !yield(e) {
			return nil
		}
	}
}

// Checkpoint returns the newest signed tree head of the audit log. With a copy of it, a
// later change of the covered entries can be detected.
func (c *Client) Checkpoint(ctx context.Context) (api.Checkpoint, error) {
	var out api.Checkpoint
	err := c.call(ctx, http.MethodGet, "/record/checkpoint", nil, &out)
	return out, err
}

// RecordKey returns the public key that verifies signed tree heads. Local callers only.
func (c *Client) RecordKey(ctx context.Context) (string, error) {
	var out api.RecordKey
	err := c.call(ctx, http.MethodGet, "/record/key", nil, &out)
	return out.Key, err
}

// VerifyRecord verifies the whole audit log on the server. It compares the log with the
// earlier signed tree heads in against. Local callers only.
func (c *Client) VerifyRecord(ctx context.Context, against ...string) (api.Verification, error) {
	var out api.Verification
	err := c.call(ctx, http.MethodPost, "/record/verify", api.VerifyRecord{Against: against}, &out)
	return out, err
}

// Proof returns a proof that one entry is in the audit log. CheckProof checks it without
// the server. Local callers only.
func (c *Client) Proof(ctx context.Context, seq int64) (api.Proof, error) {
	var out api.Proof
	err := c.call(ctx, http.MethodGet, "/record/"+strconv.FormatInt(seq, 10)+"/proof", nil, &out)
	return out, err
}

// ExportRecord writes entries in a form that VerifyRecordFile verifies without the
// server. Newest and Follow do not apply. Local callers only.
func (c *Client) ExportRecord(ctx context.Context, o RecordOptions, w io.Writer) error {
	o.Newest, o.Follow = 0, false
	resp, err := c.open(ctx, "/record/export?"+o.query().Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("crannog: export the audit log: %w", err)
	}
	return nil
}

// CheckProof checks a proof without a server and returns its entry. The proof shows that the owner
// of p.Key signed the entry. The caller must know who the owner is.
func CheckProof(p api.Proof) (api.Entry, error) {
	e, err := audit.CheckProof(audit.Proof{
		Entry: p.Entry, Seq: p.Seq, Hashes: p.Hashes, Key: p.Key,
		Checkpoint: audit.Checkpoint{Size: p.Checkpoint.Size, Root: p.Checkpoint.Root, Note: p.Checkpoint.Note},
	})
	if err != nil {
		return api.Entry{}, fromFault(err)
	}
	return api.Entry{
		Seq: e.Seq, Time: e.Time, Prev: e.Prev, Kind: string(e.Kind), Sandbox: e.Sandbox, Actor: e.Actor,
		Data: e.Data, Source: e.Source, At: e.At,
	}, nil
}

// VerifyRecordFile verifies a file of ExportRecord without a server. The key must come from a
// trusted source, not from the file. against contains earlier signed tree heads.
func VerifyRecordFile(r io.Reader, key string, against ...string) (api.Verification, error) {
	v, err := audit.VerifyFile(r, key, against...)
	return api.Verification{
		OK: v.OK, Entries: v.Entries, First: v.First, Seq: v.Seq, Fault: string(v.Flaw), Text: v.Text,
		Checkpoints: v.Checkpoints, Uncovered: v.Uncovered,
	}, fromFault(err)
}
