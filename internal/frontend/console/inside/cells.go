package inside

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/guestwire"
)

const (
	// maxCode bounds the body of a cell.
	maxCode = 4 << 20
	// maxShownLine bounds a line of the interpreter that is shown. Plain code can produce lines of
	// 24 MiB, of which several copies would be in memory.
	maxShownLine = 8 << 20
	// readBufferSize is the size of the read buffer. The kind of a longer line is searched only in
	// the part that fits into it.
	readBufferSize = 64 << 10
	// cellWriteTimeout is how long a page may take to read one line.
	cellWriteTimeout = 30 * time.Second
)

// cell runs code and streams its output as lines of JSON. If the page leaves, the code is
// interrupted.
func (x *Inside) cell(w http.ResponseWriter, r *http.Request, v visit) error {
	var in struct {
		Code     string `json:"code"`
		Language string `json:"language,omitempty"`
		Context  string `json:"context,omitempty"`
	}
	if err := readJSON(w, r, maxCode, &in); err != nil {
		return err
	}
	fields := map[string]string{"code": in.Code}
	switch {
	case in.Context != "":
		fields["context_id"] = in.Context
	case in.Language != "":
		fields["language"] = in.Language
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	guest := x.connect(v, 0)
	defer guest.close()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, baseURL+"/execute", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = guest.header(guestboot.InterpreterPort)
	req.Header.Set("Content-Type", "application/json")
	started := time.Now()
	res, err := guest.client.Do(req)
	if err != nil {
		return guestFailed(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return guestHTTPError(res, "cell")
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	out := &cellLines{w: w, rc: http.NewResponseController(w)}
	defer out.clearDeadline()
	end, err := out.copyLines(res.Body)
	if err != nil || end.Lost && r.Context().Err() != nil {
		return nil // the page has left
	}
	end.DurationMS = time.Since(started).Milliseconds()
	_ = out.send(end) // an error means that the client has left
	return nil
}

// copyLines sends output of the interpreter to the page until the last line, which it returns. An
// error means that the page has left.
func (c *cellLines) copyLines(body io.Reader) (end cellEnd, err error) {
	end = cellEnd{Type: "end"}
	lines := cellReader{source: bufio.NewReaderSize(body, readBufferSize)}
	for {
		line, size, err := lines.next()
		if err != nil {
			end.Lost = true
			return end, nil
		}
		if size > maxShownLine {
			if err := c.send(tooLarge(line, size)); err != nil {
				return end, err
			}
			continue
		}
		next, count, ended := readLine(line)
		end.Count = max(end.Count, count)
		if ended {
			return end, nil
		}
		if err := c.send(next); err != nil {
			return end, err
		}
	}
}

// cellReader reads the interpreter's lines.
type cellReader struct {
	source  *bufio.Reader
	partial []byte
}

// next returns a line, valid until the next call, and its size. For a line larger than maxShownLine
// it returns only the beginning.
func (c *cellReader) next() (line []byte, size int64, err error) {
	c.partial = nil // do not keep a large buffer until the cell ends
	for {
		part, err := c.source.ReadSlice('\n')
		size += int64(len(part))
		switch {
		case err == nil && c.partial == nil:
			return part, size, nil
		case size <= maxShownLine:
			c.partial = append(c.partial, part...)
		case len(c.partial) > readBufferSize:
			c.partial = bytes.Clone(c.partial[:readBufferSize])
		}
		switch {
		case err == nil, errors.Is(err, io.EOF) && size > 0:
			return c.partial, size, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, 0, err
		}
	}
}

type (
	cellText struct {
		Type string `json:"type"`
		Text quoted `json:"text"`
	}
	cellResult struct {
		Type string                     `json:"type"`
		Main bool                       `json:"main"`
		Data map[string]json.RawMessage `json:"data"`
	}
	cellError struct {
		Type      string `json:"type"`
		Name      quoted `json:"name"`
		Value     quoted `json:"value"`
		Traceback quoted `json:"traceback"`
	}
	cellEnd struct {
		Type       string `json:"type"`
		DurationMS int64  `json:"duration_ms"`
		Count      int    `json:"execution_count"`
		// Lost means that the stream broke, so that the result of the code is unknown.
		Lost bool `json:"lost,omitempty"`
	}
)

// quoted is a text as encoded JSON, which is passed on without decoding.
type quoted json.RawMessage

func quote(text string) quoted {
	q, err := json.Marshal(text)
	if err != nil { // strings always encode
		panic(err)
	}
	return q
}

// UnmarshalJSON implements json.Unmarshaler.
func (q *quoted) UnmarshalJSON(value []byte) error {
	switch {
	case value[0] == '"':
		*q = bytes.Clone(value)
	case string(value) != "null":
		return errors.New("no text")
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (q quoted) MarshalJSON() ([]byte, error) {
	if len(q) == 0 {
		return []byte(`""`), nil
	}
	return q, nil
}

// media are the media types of the interpreter's representations of a value.
var media = map[string]string{
	"text": "text/plain", "html": "text/html", "markdown": "text/markdown", "svg": "image/svg+xml", "png": "image/png",
	"jpeg": "image/jpeg", "pdf": "application/pdf", "latex": "text/latex", "json": "application/json",
	"javascript": "application/javascript", "data": "application/vnd.crannog.data+json",
	"chart": "application/vnd.crannog.chart+json", "extra": "application/vnd.crannog.extra+json",
}

// byMedia are the representations that can be shown, by media type.
func byMedia(f *guestwire.Forms) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for name, value := range f.ByName() {
		if string(value) != "null" {
			all[media[name]] = value
		}
	}
	return all
}

// tooLarge returns the replacement for a line that is too large to be shown. It looks only at the
// line's beginning, where the guest puts the kind.
func tooLarge(line []byte, size int64) any {
	kind, name := lineHeader(line)
	text := fmt.Sprintf("[%d MB, too large to be shown here: the limit is %d MB]", size>>20, maxShownLine>>20)
	switch kind {
	case "stdout", "stderr":
		return cellText{Type: kind, Text: quote(text + "\n")}
	case "error":
		return cellError{Type: kind, Name: quote(name), Value: quote(text), Traceback: quote(name + ": " + text)}
	case "result":
		return cellResult{Type: kind, Data: map[string]json.RawMessage{"text/plain": json.RawMessage(quote(text))}}
	}
	return nil
}

// lineHeader reads the kind of a line, and the name of an error, from the line's beginning.
func lineHeader(line []byte) (kind, name string) {
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", ""
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			break
		}
		var value any
		if d.Decode(&value) != nil {
			break // the beginning ends here
		}
		switch text, _ := value.(string); key {
		case "type":
			kind = text
		case "name":
			name = text
		}
	}
	return kind, name
}

// readLine parses a line of the interpreter. It skips unknown lines, and passes only known forms to
// the page.
func readLine(line []byte) (next any, count int, ended bool) {
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
		var fields struct {
			Main json.RawMessage `json:"is_main_result"`
			guestwire.Forms
		}
		if json.Unmarshal(line, &fields) != nil {
			return nil, 0, false
		}
		r := cellResult{Type: "result", Data: byMedia(&fields.Forms)}
		_ = json.Unmarshal(fields.Main, &r.Main) // absent means no
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

// send sends one line, unless it is nil.
func (c *cellLines) send(line any) error {
	if line == nil {
		return nil
	}
	_ = c.rc.SetWriteDeadline(time.Now().Add(cellWriteTimeout)) // without a deadline the connection cannot block
	// Line breaks in text of a sandbox are escaped, so that each value stays on one line. HTML
	// characters are not escaped: no browser parses these lines as HTML, and six bytes for each
	// would need six times the memory.
	e := json.NewEncoder(c.w)
	e.SetEscapeHTML(false)
	if err := e.Encode(line); err != nil {
		return err
	}
	return c.rc.Flush()
}

// clearDeadline removes the deadline, because the connection may serve other requests.
func (c *cellLines) clearDeadline() { _ = c.rc.SetWriteDeadline(time.Time{}) }
