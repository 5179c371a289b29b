package examine

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/packages/content"
)

const (
	// scanLife is how long the result of a scan is used with the same version of the scanner's
	// database. Signatures of one's own do not change this version.
	scanLife = time.Hour
	// maxForms limits the results of inspections of one content. It is inspected once for each form
	// that it should have, which depends on its name.
	maxForms = 8
	// maxField limits the texts in a result.
	maxField = 256
)

// result is what is known about one content, as it is stored.
type result struct {
	SHA256    string      `json:"sha256"`
	Inspected []inspected `json:"inspected,omitempty"`
	Scan      *scanned    `json:"scan,omitempty"`
}

// inspected is the result of one inspection.
type inspected struct {
	Form     string            `json:"form"`
	Revision string            `json:"revision"`
	Findings []content.Finding `json:"findings,omitempty"`
}

// scanned is the result of the last scan.
type scanned struct {
	Scanner string    `json:"scanner"`
	Found   string    `json:"found,omitempty"`
	At      time.Time `json:"at"`
}

// find returns the findings of this program's inspection.
func (r *result) find(form content.Form) ([]content.Finding, bool) {
	for _, i := range r.Inspected {
		if i.Form == form.Key() && i.Revision == content.Revision() {
			return i.Findings, true
		}
	}
	return nil, false
}

// add sets the findings of this program's inspection, and drops those of others.
func (r *result) add(form content.Form, findings []content.Finding) {
	r.Inspected = slices.DeleteFunc(r.Inspected, func(i inspected) bool { return i.Form == form.Key() || i.Revision != content.Revision() })
	r.Inspected = append(r.Inspected[max(0, len(r.Inspected)-maxForms+1):], inspected{form.Key(), content.Revision(), findings})
}

// parseResult reads a stored result. What cannot be one of this package counts as none, and the
// content is examined again.
func parseResult(sum string, text []byte) *result {
	none := &result{SHA256: sum}
	var r result
	if json.Unmarshal(text, &r) != nil || r.SHA256 != sum || len(r.Inspected) > maxForms {
		return none
	}
	for _, i := range r.Inspected {
		if len(i.Form) > maxField || len(i.Revision) > maxField || len(i.Findings) > content.MaxFindings ||
			slices.ContainsFunc(i.Findings, func(f content.Finding) bool { return !f.Valid() }) {
			return none
		}
	}
	if s := r.Scan; s != nil && (s.Scanner == "" || len(s.Scanner) > maxField || len(s.Found) > maxField) {
		return none
	}
	return &r
}

// within reports whether a time lies in the past, and less than life ago.
func within(at, now time.Time, life time.Duration) bool { return !at.After(now) && now.Sub(at) < life }

// results reads and writes results. Two processes that write one at the same time lose one of the
// results, which costs another examination.
type results struct {
	files   Files
	writing sync.Mutex
}

func (r *results) load(sum string) *result {
	text, err := r.files.Result(sum)
	if err != nil {
		return &result{SHA256: sum}
	}
	return parseResult(sum, text)
}

// keep changes the result about a content. An error is ignored, because the content is then
// examined again.
func (r *results) keep(sum string, change func(*result)) {
	r.writing.Lock()
	defer r.writing.Unlock()
	k := r.load(sum)
	change(k)
	if text, err := json.Marshal(k); err == nil {
		_ = r.files.PutResult(sum, text)
	}
}
