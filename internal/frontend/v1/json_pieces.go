package v1

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
)

// jsonFormat writes answers with a sandbox's output piece by piece. encoding/json builds an answer
// as a whole before it writes any of it, and encodes a byte such as NUL with six. A sandbox that
// prints only such bytes would make the server use many times the output limit.
var jsonFormat = huma.Format{
	Marshal: func(w io.Writer, v any) error {
		switch v := v.(type) {
		case api.ExecResult:
			return writeResult(w, v)
		case api.Changes:
			return writeChanges(w, v)
		}
		return huma.DefaultJSONFormat.Marshal(w, v)
	},
	Unmarshal: huma.DefaultJSONFormat.Unmarshal,
}

// writeResult writes a command's output a piece at a time.
func writeResult(w io.Writer, r api.ExecResult) error {
	stdout, stderr := r.Stdout, r.Stderr
	r.Stdout, r.Stderr = "", ""
	return writeWithPlaceholders(w, r, []placeholder{
		{`"stdout":""`, func() error { return writeString(w, "stdout", stdout) }},
		{`"stderr":""`, func() error { return writeString(w, "stderr", stderr) }},
	})
}

// writeChanges writes one change at a time; the text of each is bounded.
func writeChanges(w io.Writer, c api.Changes) error {
	list := c.Changes
	c.Changes = []api.Change{}
	return writeWithPlaceholders(w, c, []placeholder{{`"changes":[]`, func() error {
		if _, err := io.WriteString(w, `"changes":[`); err != nil {
			return err
		}
		for i, change := range list {
			piece, err := encode(change)
			if err != nil {
				return err
			}
			if i > 0 {
				piece = append([]byte{','}, piece...)
			}
			if _, err := w.Write(piece); err != nil {
				return err
			}
		}
		_, err := io.WriteString(w, "]")
		return err
	}}})
}

// placeholder is a member of an object that is replaced by streamed content. No value can
// equal it, because quotes within strings are escaped.
type placeholder struct {
	member string
	write  func() error
}

func writeWithPlaceholders(w io.Writer, v any, placeholders []placeholder) error {
	text, err := encode(v)
	if err != nil {
		return err
	}
	for _, h := range placeholders {
		before, after, found := bytes.Cut(text, []byte(h.member))
		if !found {
			return fmt.Errorf("an answer without %s: %s", h.member, text)
		}
		if _, err := w.Write(before); err != nil {
			return err
		}
		if err := h.write(); err != nil {
			return err
		}
		text = after
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// stringPiece is how many bytes of a string are encoded at once.
const stringPiece = 32 << 10

func writeString(w io.Writer, name, s string) error {
	if _, err := fmt.Fprintf(w, "%q:\"", name); err != nil {
		return err
	}
	for len(s) > 0 {
		n := min(len(s), stringPiece)
		// Do not split a character, because its halves would be replaced.
		for n < len(s) && n > stringPiece-utf8.UTFMax && !utf8.RuneStart(s[n]) {
			n--
		}
		piece, err := encode(s[:n])
		if err != nil {
			return err
		}
		if _, err := w.Write(piece[1 : len(piece)-1]); err != nil {
			return err
		}
		s = s[n:]
	}
	_, err := io.WriteString(w, `"`)
	return err
}

// encode is json.Marshal without escaping HTML characters.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := huma.DefaultJSONFormat.Marshal(&b, v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
