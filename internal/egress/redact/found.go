package redact

import "slices"

// Found returns the names of the values in b, each once.
func (r *Redactor) Found(b []byte) []string {
	if r == nil || len(b) == 0 {
		return nil
	}
	s := r.Stream()
	s.buf = b[:len(b):len(b)] // The scan only reads the buffer.
	s.scan()
	s.cut()
	var names []string
	for _, span := range s.spans {
		if name := s.t.names[span.pattern]; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
