package ingest

import (
	"bytes"
	"context"
	"errors"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
)

// Gap is the data of an entry of kind gap: an event was not observed, or is not in the audit log.
type Gap struct {
	// Lost is the number of lost events or entries; zero means unknown.
	Lost uint64 `json:"lost,omitempty"`
	// Of is the source of the lost events: events, net or record.
	Of string `json:"of"`
	// Reason is one of: missing (lines were lost), cut (the last line is incomplete), disorder
	// (duplicate lines or wrong order), refused (the audit log cannot store the line), survey
	// (changes of files could not be determined), record_unavailable (the audit log was unavailable
	// for an event that had happened), or a reason of the engine.
	Reason string `json:"reason"`
}

// maxSeq exceeds every real line number.
const maxSeq = 1 << 60

// batch is the result of reading some lines, and the state of the file after them.
type batch struct {
	file
	origin *file  // file that the batch was read from
	hide   Redact // nil if the values to redact are not known
	drafts []audit.Draft
	anchor int64 // offset of the last line that became an entry
}

// lines processes complete lines and returns their length in bytes.
func (b *batch) lines(data []byte) int {
	used := 0
	for len(b.drafts) < maxLines {
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
	if used == 0 && len(data) == maxLine {
		b.skip = true // the number of the next line shows the loss
		return len(data)
	}
	return used
}

// line creates the entries of one line. It creates none for an invalid line: the number of the next
// line shows the loss.
func (b *batch) line(text []byte, begin int64) {
	l, err := b.form.Read(text, b.hide)
	if err == nil && l.Seq > maxSeq {
		err = errors.New("the number of the line is too large")
	}
	b.bad = err != nil && len(text) > 0
	if err != nil {
		return
	}
	// Another process may have read and ingested the earlier lines. Their order is known only if
	// this process did.
	disorder := l.Seq <= b.read && b.read == b.last
	b.read = max(b.read, l.Seq)
	switch {
	case disorder && l.Seq < b.last:
		b.gap(1, "disorder", b.last)
		return
	case l.Seq <= b.last:
		return // it is in the audit log already
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

// cut reports an incomplete last line of a file whose writer has ended, because no later line would
// reveal the loss.
func (b *batch) cut() {
	if !b.bad || b.last != b.read {
		return // the last line is complete, or the loss was reported before
	}
	b.bad = false
	b.last++
	b.gap(1, "cut", b.last)
}

// gap adds an entry for lost lines.
func (b *batch) gap(lost uint64, reason string, at uint64) {
	b.drafts = append(b.drafts, b.gapAt(lost, reason, at))
}

// gapAt returns the entry for lost lines up to the number at. 0 means that the number is unknown.
func (b *batch) gapAt(lost uint64, reason string, at uint64) audit.Draft {
	d := audit.Draft{
		Kind: audit.Gap, Sandbox: b.sandbox, Actor: "server", Data: Gap{Lost: lost, Of: b.form.Source, Reason: reason},
	}
	if at > 0 {
		d.Source, d.At = b.source, at
	}
	return d
}

// write appends the entries to the audit log. An entry that the log can never accept must not block
// the others.
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
		b.setLast(d.At)
	}
	return nil
}

// setLast notes that a line is in the audit log, even if a later line fails.
func (b *batch) setLast(at uint64) { b.origin.last = max(b.origin.last, at) }
