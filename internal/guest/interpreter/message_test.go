package interpreter

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTooLongMessageIsError(t *testing.T) {
	in := newMessages(io.MultiReader(strings.NewReader(`{"type":"`), &endlessReader{}))
	if _, err := in.next(); !errors.Is(err, errMessageTooLong) {
		t.Errorf("next: got %v, want errMessageTooLong", err)
	}
}

// endlessReader never ends and has no newline.
type endlessReader struct{}

func (endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// FuzzMessages checks that any data from code in a sandbox is either an error or a valid message.
func FuzzMessages(f *testing.F) {
	for _, s := range []string{
		`{"type":"ready"}` + "\n", `{"type":"done","n":1,"status":3}` + "\n",
		`{"type":"result","n":1,"ack":true,"text":"x","json":{"a":[1]},"is_main_result":true}` + "\n",
		`{"type":"error","n":1,"name":"E","value":"v","traceback":"t"}` + "\n{}", "\n", "null\n", "[]\n", "{\"n\":1e99}\n",
		`{"type":"result","chart":null,"extra":"\ud800"}` + "\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := newMessages(strings.NewReader(string(data)))
		for range len(data) + 1 {
			m, err := in.next()
			if err != nil {
				return
			}
			if m.check() != nil {
				t.Fatalf("type %q is accepted", m.Type)
			}
			for _, line := range []any{resultLine{"result", m.result}, errorLine{"error", m.execError}} {
				out, err := json.Marshal(line)
				if err != nil || !json.Valid(out) || strings.Contains(string(out), "\n") {
					t.Fatalf("encoding of %+v: got %q, %v, want one line of JSON", line, out, err)
				}
			}
		}
		t.Fatal("more messages than bytes")
	})
}

// FuzzWholeRunes checks that the joined chunks are the text.
func FuzzWholeRunes(f *testing.F) {
	f.Add([]byte("aé世😀"), 3)
	f.Add([]byte{0xff, 0xc3, 0x80, 0xe4}, 1)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		if size < utf8.UTFMax || size > 1<<16 {
			return
		}
		var joined strings.Builder
		for rest := data; len(rest) > 0; {
			n := wholeRunes(rest[:min(size, len(rest))])
			if n == 0 {
				t.Fatalf("no progress in %q", rest)
			}
			joined.WriteString(strings.ToValidUTF8(string(rest[:n]), ""))
			rest = rest[n:]
		}
		if utf8.Valid(data) && joined.String() != string(data) {
			t.Fatalf("joined chunks of %q: got %q", data, joined.String())
		}
	})
}
