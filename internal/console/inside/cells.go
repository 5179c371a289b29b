package inside

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

const (
	// maxCode bounds the body of a cell.
	maxCode = 4 << 20
	// maxLine bounds one line of the interpreter's. A picture is the largest.
	maxLine = 32 << 20
	// cellWrite is how long a page may take to read one line.
	cellWrite = 30 * time.Second
)

// forms are the media types of what the interpreter shows.
var forms = map[string]string{
	"text": "text/plain", "html": "text/html", "markdown": "text/markdown", "svg": "image/svg+xml", "png": "image/png",
	"jpeg": "image/jpeg", "pdf": "application/pdf", "latex": "text/latex", "json": "application/json",
	"javascript": "application/javascript", "data": "application/vnd.crannog.data+json",
	"chart": "application/vnd.crannog.chart+json", "extra": "application/vnd.crannog.extra+json",
}

// cell runs code, and streams what it prints and shows as lines of JSON. A page
// that leaves interrupts it.
func (x *Inside) cell(w http.ResponseWriter, r *http.Request, v visit) error {
	var in struct {
		Code     string `json:"code"`
		Language string `json:"language,omitempty"`
		Context  string `json:"context,omitempty"`
	}
	if err := readJSON(w, r, maxCode, &in); err != nil {
		return err
	}
	ask := map[string]string{"code": in.Code}
	switch {
	case in.Context != "":
		ask["context_id"] = in.Context
	case in.Language != "":
		ask["language"] = in.Language
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	to := x.reach(v, 0)
	defer to.close()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, base+"/execute", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = to.header(engine.InterpreterPort)
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	res, err := to.client.Do(req)
	if err != nil {
		return lost(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return refused(res, "cell")
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	out := &cellLines{w: w, rc: http.NewResponseController(w)}
	defer out.rest()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	count := 0
	for lines.Scan() {
		next, n, over := readLine(lines.Bytes())
		count = max(count, n)
		if over {
			return out.send(cellEnd{Type: "end", DurationMS: time.Since(began).Milliseconds(), Count: count})
		}
		if next != nil && out.send(next) != nil {
			return nil // the page has left
		}
	}
	if r.Context().Err() == nil {
		_ = out.send(cellEnd{Type: "end", DurationMS: time.Since(began).Milliseconds(), Count: count, Lost: true})
	}
	return nil
}

type (
	cellText struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	cellResult struct {
		Type string                     `json:"type"`
		Main bool                       `json:"main"`
		Data map[string]json.RawMessage `json:"data"`
	}
	cellError struct {
		Type      string `json:"type"`
		Name      string `json:"name"`
		Value     string `json:"value"`
		Traceback string `json:"traceback"`
	}
	cellEnd struct {
		Type       string `json:"type"`
		DurationMS int64  `json:"duration_ms"`
		Count      int    `json:"execution_count"`
		// Lost says that the stream broke off: what came of the code is not
		// known.
		Lost bool `json:"lost,omitempty"`
	}
)

// readLine reads one line of the interpreter's. What it does not know is
// passed over, and nothing of it reaches a page but in these forms.
func readLine(line []byte) (next any, count int, over bool) {
	var kind struct {
		Type  string `json:"type"`
		Count int    `json:"execution_count"`
	}
	if json.Unmarshal(line, &kind) != nil {
		return nil, 0, false
	}
	switch kind.Type {
	case "stdout", "stderr":
		var t cellText
		if json.Unmarshal(line, &t) == nil {
			next = t
		}
	case "error":
		var e cellError
		if json.Unmarshal(line, &e) == nil {
			next = e
		}
	case "result":
		var fields map[string]json.RawMessage
		if json.Unmarshal(line, &fields) != nil {
			return nil, 0, false
		}
		r := cellResult{Type: "result", Data: map[string]json.RawMessage{}}
		_ = json.Unmarshal(fields["is_main_result"], &r.Main) // absent is no
		for name, value := range fields {
			if form, ok := forms[name]; ok && string(value) != "null" {
				r.Data[form] = bytes.Clone(value)
			}
		}
		next = r
	case "number_of_executions":
		return nil, max(0, kind.Count), false
	case "end_of_execution":
		return nil, 0, true
	}
	return next, 0, false
}

// cellLines writes lines to a page.
type cellLines struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (c *cellLines) send(line any) error {
	// Text of a sandbox is escaped, so that it ends no line.
	b, err := json.Marshal(line)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "internal", "a line has no form")
	}
	_ = c.rc.SetWriteDeadline(time.Now().Add(cellWrite)) // without one, nothing is held up
	if _, err := c.w.Write(append(b, '\n')); err != nil {
		return err
	}
	return c.rc.Flush()
}

// rest takes the deadline off: the connection may serve other requests.
func (c *cellLines) rest() { _ = c.rc.SetWriteDeadline(time.Time{}) }
