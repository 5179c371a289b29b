package observe

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// maxBody is the interpreter's limit for a request.
const maxBody = 16 << 20

// cell observes code that the interpreter runs. It parses the request by the interpreter's rules,
// and passes on a request that the interpreter would reject, so that the interpreter rejects it.
func (t *Tap) cell(r *http.Request, c Call) (*Visit, *refusal) {
	var read bytes.Buffer
	_, err := io.Copy(&read, io.LimitReader(r.Body, maxBody+1))
	var in struct {
		Code     *string           `json:"code"`
		Context  string            `json:"context_id"`
		Language string            `json:"language"`
		Env      map[string]string `json:"env_vars"`
	}
	refused := err != nil || read.Len() > maxBody || json.Unmarshal(read.Bytes(), &in) != nil || in.Code == nil
	restoreBody(r, &read)
	if refused {
		return nil, nil
	}
	mask := c.Mask.Record()
	sum := sha256.Sum256([]byte(mask.String(*in.Code)))
	what := Started{How: HowCell, Language: short(in.Language, mask), Context: short(in.Context, mask), CodeSum: hex.EncodeToString(sum[:])}
	left, cut := limit, false
	what.Code, what.Cut = bounded(*in.Code, mask, &left)
	what.Env, cut = names(in.Env, mask)
	what.Cut = what.Cut || cut
	cmd, err := t.begin(c, what)
	if err != nil {
		return nil, unrecorded(err)
	}
	return &Visit{answer: cmd.lines, done: func() {
		cmd.finish()
		t.surveys.request(c.Sandbox)
	}}, nil
}

// lines observes the interpreter's output.
func (cmd *command) lines(res *http.Response) error {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if res.StatusCode != http.StatusOK || kind != "application/x-ndjson" {
		cmd.end(Ended{Error: fmt.Sprintf("http_%d", res.StatusCode)})
		return nil
	}
	l := &lines{cmd: cmd}
	res.Body = &observedBody{ReadCloser: res.Body, parse: l.parse, end: func() {}}
	return nil
}

const (
	// maxLine bounds the part of a line in memory. Plain code can produce lines of 24 MiB. For a
	// longer line, the beginning is recorded and the rest is passed on unread.
	maxLine = 4 << 20
	// maxHeld bounds the size of the buffer that is reused for the next line.
	maxHeld = 64 << 10
)

// maxName bounds the name of an error, which a program chooses.
const maxName = 100

// lines parses the lines of an answer as they pass.
type lines struct {
	cmd  *command
	held []byte
	long bool   // the rest of a long line follows
	cut  bool   // a long line was cut
	err  string // the name of the error that ended the code
}

func (l *lines) parse(b []byte) {
	for len(b) > 0 {
		before, after, whole := bytes.Cut(b, []byte{'\n'})
		switch room := maxLine - len(l.held); {
		case l.long:
		case len(before) > room:
			l.held = append(l.held, before[:room]...)
			l.long, l.cut = true, true
			l.parseBeginning(l.held)
			l.held = nil
		case whole && len(l.held) == 0:
			l.line(before)
		default:
			if l.held = append(l.held, before...); whole {
				l.line(l.held)
			}
		}
		if whole {
			l.long, l.held = false, l.held[:0]
			if cap(l.held) > maxHeld {
				l.held = nil
			}
		}
		b = after
	}
}

// outputLine is the part of a line that is recorded. The rest is not copied.
type outputLine struct {
	Type      string    `json:"type"`
	Text      textValue `json:"text"`
	Name      string    `json:"name"`
	Value     string    `json:"value"`
	Traceback string    `json:"traceback"`
}

// textValue is a JSON string. Other JSON values decode to an empty text.
type textValue string

// UnmarshalJSON implements json.Unmarshaler.
func (w *textValue) UnmarshalJSON(value []byte) error {
	*w = ""
	if value[0] != '"' {
		return nil
	}
	return json.Unmarshal(value, (*string)(w))
}

func (l *lines) line(line []byte) {
	var output outputLine
	if json.Unmarshal(line, &output) != nil {
		return // the guest never writes such a line, and clients ignore it
	}
	l.addOutput(output)
}

// truncationNote replaces the rest of a long line in a recording.
const truncationNote = "… the rest was not recorded …"

// parseBeginning parses the beginning of a long line. It must find the outcome of the code there.
// Otherwise code that fails with a text of many MiB would be recorded as successful.
func (l *lines) parseBeginning(line []byte) {
	var output outputLine
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			break
		}
		at := d.InputOffset()
		var value textValue
		if err = d.Decode(&value); err != nil {
			value = textValue(unfinished(line[at:]))
		}
		switch key {
		case "type":
			output.Type = string(value)
		case "text":
			output.Text = value
		case "name":
			output.Name = string(value)
		case "value":
			output.Value = string(value)
		case "traceback":
			output.Traceback = string(value)
		}
		if err != nil {
			break
		}
	}
	l.addOutput(output)
	l.show(truncationNote)
}

// unfinished decodes a text whose end is missing, after its name. It may overwrite the memory after
// the text.
func unfinished(value []byte) (text string) {
	value = bytes.TrimLeft(value, ": \t\r")
	if len(value) == 0 || value[0] != '"' {
		return ""
	}
	value = append(value, '"')
	// The last letter may be an incomplete escape sequence.
	for range len(`\u0000`) {
		if json.Unmarshal(value, &text) == nil {
			return text
		}
		if value = value[:len(value)-1]; len(value) < 2 {
			return ""
		}
		value[len(value)-1] = '"'
	}
	return ""
}

func (l *lines) addOutput(output outputLine) {
	switch output.Type {
	case "stdout":
		l.cmd.printed(stdout, []byte(output.Text))
	case "stderr":
		l.cmd.printed(stderr, []byte(output.Text))
	case "result":
		l.show(string(output.Text))
	case "error":
		left := maxName
		l.err, _ = bounded(output.Name, l.cmd.call.Mask.Record(), &left)
		if output.Traceback == "" {
			output.Traceback = output.Name + ": " + output.Value
		}
		l.cmd.addCellError("\n" + output.Name + ": " + output.Value)
		l.show(output.Traceback)
	case "end_of_execution":
		e := Ended{Error: l.err, Truncated: l.cut}
		exit := 0
		if l.err != "" {
			exit = 1
		}
		e.Exit = &exit
		l.cmd.end(e)
	}
}

// show records the output that a notebook would show below a cell.
func (l *lines) show(text string) {
	if text == "" {
		return
	}
	line := append(make([]byte, 0, len(text)+1), text...)
	if !strings.HasSuffix(text, "\n") {
		line = append(line, '\n')
	}
	l.cmd.recording.Output(stdout, line)
}
