package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/text"
)

const (
	// maxData limits the data of an entry. A caller with more data must shorten it and note that in
	// the data.
	maxData = 256 << 10
	// maxName limits every other field.
	maxName = 256
	// maxLine limits a line: the data with every character escaped.
	maxLine = 6*maxData + 16*maxName
)

// encodedEntry is an encoded entry whose position in the log is not known yet.
type encodedEntry struct {
	time string // quoted, as on the line
	rest []byte // the line after the hash of the previous line, from the comma on
}

// unchainedFields has the fields of Entry that do not depend on the position, in the order of
// Entry.
type unchainedFields struct {
	Kind    Kind            `json:"kind"`
	Sandbox string          `json:"sandbox,omitempty"`
	Actor   string          `json:"actor,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
	Source  string          `json:"source,omitempty"`
	At      uint64          `json:"at,omitempty"`
}

// encode validates a draft and encodes it as it appears on its line.
func encode(d Draft, now time.Time) (encodedEntry, error) {
	if d.Kind == "" {
		return encodedEntry{}, invalidEntry("an entry without a kind")
	}
	for _, s := range [...]string{string(d.Kind), d.Sandbox, d.Actor, d.Source} {
		if len(s) > maxName {
			return encodedEntry{}, invalidEntry("a name in an entry of kind %.40q is longer than %d bytes", d.Kind, maxName)
		}
	}
	if (d.Source == "") != (d.At == 0) {
		return encodedEntry{}, invalidEntry("an entry of kind %s has a source without a position, or a position without a source", d.Kind)
	}
	if d.Time.IsZero() {
		d.Time = now
	}
	when, err := d.Time.UTC().MarshalJSON()
	if err != nil {
		return encodedEntry{}, invalidEntry("an entry of kind %s has an invalid time", d.Kind)
	}
	r := unchainedFields{Kind: d.Kind, Sandbox: d.Sandbox, Actor: d.Actor, Source: d.Source, At: d.At}
	if d.Data != nil {
		data, err := json.Marshal(d.Data)
		if err != nil {
			return encodedEntry{}, fault.Wrap(err, fault.Invalid, "record_entry_invalid", "the data of an entry is not JSON")
		}
		if len(data) > maxData {
			return encodedEntry{}, invalidEntry("the data of an entry of kind %s has %d bytes, and at most %d fit", d.Kind, len(data), maxData)
		}
		r.Data = data
	}
	line, err := json.Marshal(r)
	if err != nil {
		return encodedEntry{}, fault.Wrap(err, fault.Invalid, "record_entry_invalid", "an entry is not JSON")
	}
	line = text.EscapeJSON(line) // do not escape HTML: a program chooses its arguments
	line[0] = ','                // replaces the opening brace
	return encodedEntry{string(when), line}, nil
}

func invalidEntry(format string, args ...any) error {
	return fault.New(fault.Invalid, "record_entry_invalid", fmt.Sprintf(format, args...))
}

// line appends the complete line to buf: the entry with its position and the hash of the previous
// line.
func (p encodedEntry) line(buf []byte, seq int64, prev string) []byte {
	buf = append(buf, `{"seq":`...)
	buf = strconv.AppendInt(buf, seq, 10)
	buf = append(buf, `,"time":`...)
	buf = append(buf, p.time...)
	buf = append(buf, `,"prev":"`...)
	buf = append(buf, prev...)
	buf = append(buf, '"')
	return append(buf, p.rest...)
}

// decode parses a line without its line break.
func decode(line []byte) (Entry, error) {
	var e Entry
	if len(line) > maxLine {
		return e, damageError("a line has %d bytes", len(line))
	}
	in := json.NewDecoder(bytes.NewReader(line))
	in.DisallowUnknownFields()
	if err := in.Decode(&e); err != nil {
		return Entry{}, damageError("a line is not an entry: %v", err)
	}
	if in.InputOffset() != int64(len(line)) || e.Seq < 0 || e.Kind == "" {
		return Entry{}, damageError("a line is not an entry")
	}
	return e, nil
}
