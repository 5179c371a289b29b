package observe

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"

	"github.com/crannog/crannog/internal/fault"
)

// refusal is an answer that replaces the sandbox's.
type refusal struct {
	status int
	header http.Header
	body   []byte
	err    error // the same error for callers in this process
}

// refuse writes an error for a client of plain HTTP.
func refuse(status int, err error) *refusal {
	body, jsonErr := json.Marshal(map[string]any{"code": status, "message": fault.PublicText(err), "error": fault.CodeOf(err)})
	if jsonErr != nil { // strings and a number are always JSON
		panic(jsonErr)
	}
	return &refusal{status, http.Header{"Content-Type": {"application/json"}}, append(body, '\n'), err}
}

func (no *refusal) write(w http.ResponseWriter) {
	h := w.Header()
	maps.Copy(h, no.header)
	h.Set("Cache-Control", "no-store")
	// The guest gives the same answer: the token is what protects the sandbox.
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*")
	w.WriteHeader(no.status)
	_, _ = w.Write(no.body) // an error means that the client left
}

// memory is a ResponseWriter that stores the answer.
type memory struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (m *memory) Header() http.Header         { return m.header }
func (m *memory) WriteHeader(status int)      { m.status = status }
func (m *memory) Write(b []byte) (int, error) { return m.body.Write(b) }

// Flush does nothing: services require it.
func (m *memory) Flush() {}

func (m *memory) refusal(err error) *refusal {
	if m.status == 0 {
		m.status = http.StatusOK
	}
	return &refusal{m.status, m.header, m.body.Bytes(), err}
}

// again is a body of which a part was read already.
type again struct {
	io.Reader
	io.Closer
}

// ahead returns the request with its whole body, including the part that was read.
func ahead(r *http.Request, read *bytes.Buffer) {
	r.Body = again{io.MultiReader(read, r.Body), r.Body}
}

// last ends a visit and sends its answer.
type last struct {
	io.ReadCloser
	visit *Visit
}

func (l *last) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	if err != nil {
		l.visit.Done()
	}
	return n, err
}

func (l *last) Close() error {
	defer l.visit.Done()
	return l.ReadCloser.Close()
}
