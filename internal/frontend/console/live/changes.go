package live

import "bytes"

// send writes rows that a stream has not received. There is at most one new version per second.
func (f *rowTable) send(s *stream, out *frames) {
	if f.version == 0 || s.rowsVersion == f.version {
		return
	}
	out.raw("fleet", f.changes(s.rowsVersion))
	s.rowsVersion = f.version
}

// changes returns the rows that changed after a version. Streams at the same version share the
// encoded result.
func (f *rowTable) changes(from int64) []byte {
	if f.frame != nil && f.from == from && f.to == f.version {
		return f.frame
	}
	full := from == 0 || from < f.dropped
	var b bytes.Buffer
	b.WriteString(`{"full":`)
	if full {
		b.WriteString(`true,"sandboxes":[`)
	} else {
		b.WriteString(`false,"sandboxes":[`)
	}
	first := true
	comma := func() {
		if !first {
			b.WriteByte(',')
		}
		first = false
	}
	for _, r := range f.rows {
		if full || r.version > from {
			comma()
			b.Write(r.data)
		}
	}
	b.WriteString(`],"removed":[`)
	first = true
	for _, g := range f.gone {
		if !full && g.version > from && f.rows[g.id] == nil {
			comma()
			b.WriteString(`"` + g.id + `"`) // an ID needs no escapes
		}
	}
	b.WriteString(`]}`)
	f.from, f.to, f.frame = from, f.version, b.Bytes()
	return f.frame
}
