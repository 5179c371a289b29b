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

// refuse returns an error in the form for clients of plain HTTP.
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
	// Like the guest, allow pages of every origin: the token protects the sandbox, not the origin.
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*")
	w.WriteHeader(no.status)
	_, _ = w.Write(no.body) // an error means that the client left
}

// bufferedResponse is a ResponseWriter that stores the answer.
type bufferedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (m *bufferedResponse) Header() http.Header         { return m.header }
func (m *bufferedResponse) WriteHeader(status int)      { m.status = status }
func (m *bufferedResponse) Write(b []byte) (int, error) { return m.body.Write(b) }

// Flush does nothing. The services require the method.
func (m *bufferedResponse) Flush() {}

func (m *bufferedResponse) refusal(err error) *refusal {
	if m.status == 0 {
		m.status = http.StatusOK
	}
	return &refusal{m.status, m.header, m.body.Bytes(), err}
}

// partlyRead is a body of which a part was read already.
type partlyRead struct {
	io.Reader
	io.Closer
}

// restoreBody gives the request its whole body, including the part that was read.
func restoreBody(r *http.Request, read *bytes.Buffer) {
	r.Body = partlyRead{io.MultiReader(read, r.Body), r.Body}
}

// visitBody is the body of an answer. Its end is the end of the visit.
type visitBody struct {
	io.ReadCloser
	visit *Visit
}

func (l *visitBody) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	if err != nil {
		l.visit.Done()
	}
	return n, err
}

func (l *visitBody) Close() error {
	defer l.visit.Done()
	return l.ReadCloser.Close()
}
