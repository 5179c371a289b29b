package tap

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

// maxBody is the interpreter's bound of a request. It refuses a longer one.
const maxBody = 16 << 20

// cell watches code that is run. The request is read by the rules of the
// interpreter: what it would refuse goes on, to be refused.
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
	ahead(r, &read)
	if refused {
		return nil, nil
	}
	mask := c.Mask.Record()
	sum := sha256.Sum256([]byte(mask.String(*in.Code)))
	what := Started{How: HowCell, Language: short(in.Language, mask), Context: short(in.Context, mask), CodeSum: hex.EncodeToString(sum[:])}
	left, cut := most, false
	what.Code, what.Cut = bounded(*in.Code, mask, &left)
	what.Env, cut = names(in.Env, mask)
	what.Cut = what.Cut || cut
	cmd, err := t.begin(c, what)
	if err != nil {
		return nil, unrecorded(err)
	}
	return &Visit{answer: cmd.lines, done: func() {
		cmd.over()
		t.surveys.ask(c.Sandbox)
	}}, nil
}

// lines watches what the interpreter says.
func (cmd *command) lines(res *http.Response) error {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if res.StatusCode != http.StatusOK || kind != "application/x-ndjson" {
		cmd.end(Ended{Error: fmt.Sprintf("http_%d", res.StatusCode)})
		return nil
	}
	l := &lines{cmd: cmd}
	res.Body = &watched{ReadCloser: res.Body, see: l.see, end: func() {}}
	return nil
}

// maxLine bounds a line that is held: a result has up to 24 MiB, of which only
// the text is kept.
const maxLine = 32 << 20

// maxName bounds the name of an error, which a program chooses.
const maxName = 100

// lines reads the lines of an answer as they pass.
type lines struct {
	cmd   *command
	held  []byte
	blind bool
	err   string // the name of the error that ended the code
}

func (l *lines) see(b []byte) {
	for len(b) > 0 && !l.blind {
		before, after, ok := bytes.Cut(b, []byte{'\n'})
		if !ok {
			l.held = append(l.held, b...)
			l.blind = len(l.held) > maxLine
			return
		}
		line := before
		if len(l.held) > 0 {
			line = append(l.held, line...)
		}
		l.line(line)
		l.held, b = l.held[:0], after
	}
}

func (l *lines) line(line []byte) {
	var said struct {
		Type      string          `json:"type"`
		Text      json.RawMessage `json:"text"`
		Name      string          `json:"name"`
		Value     string          `json:"value"`
		Traceback string          `json:"traceback"`
	}
	if json.Unmarshal(line, &said) != nil {
		return // the guest writes none such, and a client passes it over
	}
	var text string
	if len(said.Text) > 0 && said.Text[0] == '"' {
		_ = json.Unmarshal(said.Text, &text) // it was valid as a whole
	}
	switch said.Type {
	case "stdout":
		l.cmd.printed(stdout, []byte(text))
	case "stderr":
		l.cmd.printed(stderr, []byte(text))
	case "result":
		l.show(text)
	case "error":
		left := maxName
		l.err, _ = bounded(said.Name, l.cmd.call.Mask.Record(), &left)
		if said.Traceback == "" {
			said.Traceback = said.Name + ": " + said.Value
		}
		l.cmd.failedOf("\n" + said.Name + ": " + said.Value)
		l.show(said.Traceback)
	case "end_of_execution":
		e := Ended{Error: l.err}
		exit := 0
		if l.err != "" {
			exit = 1
		}
		e.Exit = &exit
		l.cmd.end(e)
	}
}

// show puts into the recording what a notebook would show below a cell.
func (l *lines) show(text string) {
	if text == "" {
		return
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	l.cmd.tape.Output(stdout, []byte(text))
}
