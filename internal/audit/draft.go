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
	// maxData bounds the data of an entry; who has more shortens it and says so.
	maxData = 256 << 10
	// maxName bounds each other field.
	maxName = 256
	// longest bounds a line: data whose every character had to be escaped.
	longest = 6*maxData + 16*maxName
)

// piece is an entry whose place is not known yet: what follows the link to the
// line before, as it will be on the line.
type piece struct {
	time string // quoted
	rest []byte // from the comma on
}

// rest has the fields of Entry that a place does not change, in its order.
type rest struct {
	Kind    Kind            `json:"kind"`
	Sandbox string          `json:"sandbox,omitempty"`
	Actor   string          `json:"actor,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
	Source  string          `json:"source,omitempty"`
	At      uint64          `json:"at,omitempty"`
}

// encode checks a draft and brings it to the form that it has on its line.
func encode(d Draft, now time.Time) (piece, error) {
	if d.Kind == "" {
		return piece{}, refused("an entry has no kind")
	}
	for _, s := range [...]string{string(d.Kind), d.Sandbox, d.Actor, d.Source} {
		if len(s) > maxName {
			return piece{}, refused("a name in an entry of kind %.40q is longer than %d bytes", d.Kind, maxName)
		}
	}
	if (d.Source == "") != (d.At == 0) {
		return piece{}, refused("an entry of kind %s names a source without a position, or a position without a source", d.Kind)
	}
	if d.Time.IsZero() {
		d.Time = now
	}
	when, err := d.Time.UTC().MarshalJSON()
	if err != nil {
		return piece{}, refused("an entry of kind %s has an impossible time", d.Kind)
	}
	r := rest{Kind: d.Kind, Sandbox: d.Sandbox, Actor: d.Actor, Source: d.Source, At: d.At}
	if d.Data != nil {
		data, err := json.Marshal(d.Data)
		if err != nil {
			return piece{}, fault.Wrap(err, fault.Invalid, "record_entry_invalid", "the data of an entry is not JSON")
		}
		if len(data) > maxData {
			return piece{}, refused("the data of an entry of kind %s has %d bytes, and at most %d fit", d.Kind, len(data), maxData)
		}
		r.Data = data
	}
	line, err := json.Marshal(r)
	if err != nil {
		return piece{}, fault.Wrap(err, fault.Invalid, "record_entry_invalid", "an entry is not JSON")
	}
	line = text.EscapeJSON(line) // a program chooses its arguments
	line[0] = ','                // was the brace
	return piece{string(when), line}, nil
}

func refused(format string, args ...any) error {
	return fault.New(fault.Invalid, "record_entry_invalid", fmt.Sprintf(format, args...))
}

// line gives a piece its place.
func (p piece) line(buf []byte, seq int64, prev string) []byte {
	buf = append(buf, `{"seq":`...)
	buf = strconv.AppendInt(buf, seq, 10)
	buf = append(buf, `,"time":`...)
	buf = append(buf, p.time...)
	buf = append(buf, `,"prev":"`...)
	buf = append(buf, prev...)
	buf = append(buf, '"')
	return append(buf, p.rest...)
}

// decode reads a line, without its end.
func decode(line []byte) (Entry, error) {
	var e Entry
	if len(line) > longest {
		return e, damaged("a line has %d bytes", len(line))
	}
	in := json.NewDecoder(bytes.NewReader(line))
	in.DisallowUnknownFields()
	if err := in.Decode(&e); err != nil {
		return Entry{}, damaged("a line is not an entry: %v", err)
	}
	if in.InputOffset() != int64(len(line)) || e.Seq < 0 || e.Kind == "" {
		return Entry{}, damaged("a line is not an entry")
	}
	return e, nil
}
