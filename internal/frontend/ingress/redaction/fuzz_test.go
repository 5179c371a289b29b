package redaction

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/proto"

	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/guest/codec"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/sandbox"
)

const sealedValue = "tk-Zr8qP2mW/Lx4vB9+cd"

func testMask(t testing.TB, values ...string) *sandbox.Redactor {
	t.Helper()
	var list []redact.Value
	for _, v := range values {
		list = append(list, redact.Value{Name: "KEY", Data: []byte(v)})
	}
	m, err := sandbox.NewRedactor(list, sandbox.RedactorOptions{Outputs: true})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// streamOutput contains the output of a process, as a client assembles it.
type streamOutput struct {
	outputs [pty + 1][][]byte
	ended   bool
}

// readStream reads messages as a client does. It returns false if a client would report an error.
func readStream(t testing.TB, wire []byte, asJSON bool) (h streamOutput, ok bool) {
	t.Helper()
	for len(wire) > 0 {
		if len(wire) < frameHead {
			return h, false
		}
		flags, size := wire[0], int64(binary.BigEndian.Uint32(wire[1:]))
		if size > int64(len(wire)-frameHead) {
			return h, false
		}
		payload := wire[frameHead : frameHead+int(size)]
		wire = wire[frameHead+int(size):]
		if flags != 0 {
			h.ended = true
			continue
		}
		m := &pb.StartResponse{}
		err := proto.Unmarshal(payload, m)
		if asJSON {
			err = codec.JSON{}.Unmarshal(payload, m)
		}
		if err != nil {
			return h, false
		}
		for from, data := range map[output][]byte{
			stdout: m.GetEvent().GetData().GetStdout(), stderr: m.GetEvent().GetData().GetStderr(), pty: m.GetEvent().GetData().GetPty(),
		} {
			if len(data) > 0 {
				h.outputs[from] = append(h.outputs[from], data)
			}
		}
	}
	return h, true
}

func message(t testing.TB, asJSON bool, from output, data string) []byte {
	t.Helper()
	w := eventReader{json: asJSON}
	w.data(from, []byte(data))
	return w.out
}

// FuzzEvents passes arbitrary data in place of a process's events. The output is redacted, and
// otherwise equal to the input.
func FuzzEvents(f *testing.F) {
	for _, asJSON := range []bool{true, false} {
		var whole []byte
		for i := range len(sealedValue) {
			whole = append(whole, message(f, asJSON, stdout, sealedValue[i:i+1])...)
			whole = append(whole, message(f, asJSON, pty, "x"+sealedValue[:i])...)
		}
		f.Add(whole, asJSON)
		f.Add(append(message(f, asJSON, stderr, sealedValue), "\x02\x00\x00\x00\x02{}"...), asJSON)
		f.Add([]byte("\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x80\x00\x00\x00\x01x\x00\xff\xff\xff\xff"), asJSON)
	}
	f.Add([]byte("\x00\x00\x00\x00\x2a"+`{"event":{"data":{"stdout":"dGstWnI4cVA="}`+"}}"), true)
	f.Add([]byte("\x00\x00\x00\x00\x36"+`{ "event":{"end":{"status":"tk-Zr8qP2mW/Lx4vB9+cd"} } }`), true)
	m := testMask(f, sealedValue)
	f.Fuzz(func(t *testing.T, wire []byte, asJSON bool) {
		out, err := io.ReadAll(newEvents(bytes.NewReader(wire), asJSON, m.Text))
		slow, slowErr := io.ReadAll(newEvents(iotest.OneByteReader(bytes.NewReader(wire)), asJSON, m.Text))
		if (err == nil) != (slowErr == nil) || err == nil && !bytes.Equal(out, slow) {
			t.Fatalf("the result depends on the sizes of reads: %q, %v; %q, %v", out, err, slow, slowErr)
		}
		got, ok := readStream(t, out, asJSON)
		if !ok {
			t.Fatalf("%q was redacted to %q, which is not a valid stream", wire, out)
		}
		if err != nil {
			return // the stream is incomplete, and the reader gets the error
		}
		in, ok := readStream(t, wire, asJSON)
		if !ok || in.ended != got.ended {
			t.Fatalf("%q is not a valid stream, but was redacted to %q without an error", wire, out)
		}
		for from := range in.outputs {
			want := m.Text().Stream()
			var text []byte
			for _, piece := range in.outputs[from] {
				text = want.Append(text, piece)
			}
			if in.ended || len(in.outputs[from]) > 0 {
				text = want.End(text)
			}
			all := bytes.Join(got.outputs[from], nil)
			if !hasEnds(wire) && !bytes.Equal(all, text) {
				t.Fatalf("%v: %q, want %q", output(from), all, text)
			}
			if bytes.Contains(all, []byte(sealedValue)) && !hasEnds(wire) {
				t.Fatalf("%v contains the value: %q", output(from), all)
			}
		}
	})
}

// hasEnds reports whether a message within the stream ends the text, after which redaction starts
// again.
func hasEnds(wire []byte) bool {
	for len(wire) >= frameHead {
		size := int(binary.BigEndian.Uint32(wire[1:]))
		if wire[0] != 0 || bytes.Contains(wire[frameHead:min(frameHead+size, len(wire))], []byte("\x1a")) || bytes.Contains(wire, []byte(`end`)) {
			return true
		}
		wire = wire[min(frameHead+size, len(wire)):]
	}
	return false
}

// FuzzFrames passes messages that cannot be parsed. They keep their lengths.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x18a "+sealedValue+"b"), 3)
	f.Add([]byte("\x00\x00\x00\x00\x00\x02\x00\x00\x00\x01{"), 1)
	m := testMask(f, sealedValue)
	f.Fuzz(func(t *testing.T, wire []byte, step int) {
		source := io.Reader(bytes.NewReader(wire))
		if step%2 == 0 {
			source = iotest.OneByteReader(source)
		}
		out, err := io.ReadAll(&frameReader{source: source, redactor: m.Bytes})
		if err == nil && len(out) != len(wire) || len(out) > len(wire) {
			t.Fatalf("%d bytes become %d", len(wire), len(out))
		}
		for at := 0; at+frameHead <= len(out); {
			if !bytes.Equal(out[at:at+frameHead], wire[at:at+frameHead]) {
				t.Fatalf("a head at %d changed: %q to %q", at, wire, out)
			}
			size := int64(binary.BigEndian.Uint32(wire[at+1:]))
			payload := out[at+frameHead : min(int64(at+frameHead)+size, int64(len(out)))]
			if bytes.Contains(payload, []byte(sealedValue)) {
				t.Fatalf("the redacted message contains the value: %q", out)
			}
			at += frameHead + len(payload)
		}
	})
}

// FuzzJSON checks that redacted JSON is valid and contains no secret.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":"` + sealedValue + `"}`, `["\u0074k-Zr8qP2mW\/Lx4vB9+cd",12345678901]`, `{"png":"dGstWnI4cVAybVcvTHg0dkI5K2Nk"}`,
		`{"tk-Zr8qP2mW/Lx4vB9+cd":null}`, `"`, `"\ud800"`, `-1.5e+300`, `{"png":["x"],"png":{"pdf":"aaaa"}}`, "no JSON " + sealedValue,
	} {
		f.Add([]byte(seed))
	}
	m := testMask(f, sealedValue, "12345678901")
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		out := jsonMask{text: m.Text(), pictures: m.Bytes()}.mask(text)
		if !bytes.Equal(text, before) {
			t.Fatal("the argument is changed")
		}
		if bytes.Contains(out, []byte(sealedValue)) {
			t.Fatalf("%q shows the value", out)
		}
		if !json.Valid(text) {
			return
		}
		if !json.Valid(out) {
			t.Fatalf("%q becomes %q", text, out)
		}
		var decoded any
		if err := json.Unmarshal(out, &decoded); err != nil {
			return // a number is out of the range of float64
		}
		if strings.Contains(flatten(decoded), sealedValue) {
			t.Fatalf("%q contains the value in decoded form", out)
		}
	})
}

// flatten returns all strings of a JSON value.
func flatten(v any) string {
	switch v := v.(type) {
	case string:
		return v + "\x00"
	case []any:
		var all strings.Builder
		for _, each := range v {
			all.WriteString(flatten(each))
		}
		return all.String()
	case map[string]any:
		var all strings.Builder
		for name, each := range v {
			all.WriteString(name + "\x00" + flatten(each))
		}
		return all.String()
	}
	return ""
}
