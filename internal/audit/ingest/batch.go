package ingest

import (
	"bytes"
	"context"
	"errors"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
)

// Gap is the data of an entry of the kind gap: something happened and was not
// seen, or is not in the record.
type Gap struct {
	// Lost is how many events or entries; zero is not known.
	Lost uint64 `json:"lost,omitempty"`
	// Of is what they are of: events, net or record.
	Of string `json:"of"`
	// Reason is why: missing (lines were lost), cut (the last line breaks
	// off), disorder (lines came twice or out of their order), refused (the
	// record cannot hold the line), survey (what
	// became of files could not be found out), record_unavailable (the record
	// refused what had to happen anyway), or what the engine says.
	Reason string `json:"reason"`
}

// lastSeq is far beyond what anybody writes.
const lastSeq = 1 << 60

// batch is what comes of some lines, and the file as it is behind them.
type batch struct {
	file
	origin *file // that the batch is of
	hide   Hide
	drafts []audit.Draft
	anchor int64 // where the last line begins that made an entry
}

// lines reads whole lines and returns how many bytes they were.
func (b *batch) lines(data []byte) int {
	used := 0
	for len(b.drafts) < most {
		rest := data[used:]
		if freed := len(rest) - len(bytes.TrimLeft(rest, "\x00")); freed > 0 {
			used += freed
			continue
		}
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			break
		}
		if !b.skip {
			b.line(rest[:end], b.at+int64(used))
		}
		b.skip = false
		used += end + 1
	}
	if used == 0 && len(data) == longest {
		b.skip = true // the number of the next line tells of it
		return len(data)
	}
	return used
}

// line makes entries of one line. One that cannot be read is lost, which the
// number of the next one tells.
func (b *batch) line(text []byte, begin int64) {
	l, err := b.form.Read(text, b.hide)
	if err == nil && l.Seq > lastSeq {
		err = errors.New("a number that no file comes to")
	}
	b.bad = err != nil && len(text) > 0
	if err != nil {
		return
	}
	// What was read before, by this process or another, is in no order that
	// could be told any more.
	disorder := l.Seq <= b.read && b.read == b.last
	b.read = max(b.read, l.Seq)
	switch {
	case disorder && l.Seq < b.last:
		b.gap(1, "disorder", b.last)
		return
	case l.Seq <= b.last:
		return // it is in the record
	case l.Seq > b.last+1:
		b.gap(l.Seq-b.last-1, "missing", l.Seq-1)
	}
	b.last = l.Seq
	if l.Silent {
		return
	}
	l.Draft.Sandbox, l.Draft.Source, l.Draft.At = b.sandbox, b.source, l.Seq
	b.drafts = append(b.drafts, l.Draft)
	b.anchor = begin
}

// cut reports an incomplete last line at the end of a file that has no writer any more: no later
// sequence number would show that the line is lost.
func (b *batch) cut() {
	if !b.bad || b.last != b.read {
		return // or it was told before
	}
	b.bad = false
	b.last++
	b.gap(1, "cut", b.last)
}

func (b *batch) gap(lost uint64, reason string, at uint64) {
	b.drafts = append(b.drafts, b.gapAt(lost, reason, at))
}

func (b *batch) gapAt(lost uint64, reason string, at uint64) audit.Draft {
	d := audit.Draft{
		Kind: audit.Gap, Sandbox: b.sandbox, Actor: "server", Data: Gap{Lost: lost, Of: b.form.Source, Reason: reason},
	}
	if at > 0 {
		d.Source, d.At = b.source, at
	}
	return d
}

// write puts the entries into the record. One that the record cannot take
// whenever it is tried must not keep the others out.
func (b *batch) write(ctx context.Context, to audit.Recorder) error {
	if len(b.drafts) == 0 {
		return nil
	}
	err := to.Append(ctx, b.drafts...)
	if err == nil || fault.KindOf(err) != fault.Invalid {
		return err
	}
	for _, d := range b.drafts {
		err := to.Append(ctx, d)
		if fault.KindOf(err) == fault.Invalid {
			err = to.Append(ctx, b.gapAt(1, "refused", d.At))
		}
		if err != nil {
			return err
		}
		b.record(d.At)
	}
	return nil
}

// record notes on the file itself that a line is in the record, also if one
// behind it fails.
func (b *batch) record(at uint64) { b.origin.last = max(b.origin.last, at) }
