package redact

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

// withoutSkip returns a copy of r that passes each byte to the automata.
func withoutSkip(r *Redactor) *Redactor {
	t := *r.tables()
	t.skip = nil
	return &Redactor{sameLength: r.sameLength, tables: func() *tables { return &t }}
}

// compareSkip redacts a text in pieces with and without skipping. The output must be the same, and
// also the bytes that are held after each piece.
func compareSkip(t *testing.T, r *Redactor, text []byte, ends []int) {
	t.Helper()
	if r.tables().skip == nil {
		t.Fatal("the Redactor has no skip table, so there is nothing to compare")
	}
	fast, slow := r.Stream(), withoutSkip(r).Stream()
	from := 0
	for _, end := range append(ends, len(text)) {
		got, want := fast.Append(nil, text[from:end]), slow.Append(nil, text[from:end])
		if !bytes.Equal(got, want) {
			t.Fatalf("the piece from %d to %d of\n%q\ngot  %q\nwant %q", from, end, text, got, want)
		}
		if fast.plain != slow.plain || fast.wrapped != slow.wrapped || fast.escape != slow.escape {
			t.Fatalf("after the piece from %d to %d of\n%q\nthe nodes are %d %d, want %d %d", from, end, text,
				fast.plain, fast.wrapped, slow.plain, slow.wrapped)
		}
		from = end
	}
	if got, want := fast.End(nil), slow.End(nil); !bytes.Equal(got, want) {
		t.Fatalf("the end of\n%q\ngot  %q\nwant %q", text, got, want)
	}
}

// FuzzSkip compares skipping with reading each byte, for values and for all kinds of tokens.
func FuzzSkip(f *testing.F) {
	f.Add([]byte("abcdabcd"), []byte("a bc\\nd ab\\\\ncda eyJabcd 61 62 63 64"), uint8(3))
	f.Add([]byte("tk-Zr8?qP/2mW"), []byte("dGstWnI4P3FQLzJtVw d G s t\\r\\nWnI4 sk-ant-x AKIA----BEGIN "), uint8(0))
	f.Add([]byte("-----BEGIN \n"), []byte("-----BEGIN -----BEGIN \n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END "), uint8(7))
	f.Fuzz(func(t *testing.T, value, text []byte, every uint8) {
		if len(value) > 100 || len(text) > 4000 || Check(value) != nil {
			return
		}
		r, err := New([]Value{{"V", value}}, Options{Patterns: true, SameLength: every%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		var ends []int
		for at := int(every); every > 0 && at < len(text); at += int(every) {
			ends = append(ends, at)
		}
		compareSkip(t, r, text, ends)
	})
}

// The texts consist of parts of patterns, so that many of them nearly match.
func TestSkipChangesNoOutput(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	values := []Value{{"A", []byte("tk-Zr8?qP/2mW")}, {"B", []byte("a \\n\tbc\"d e")}, {"C", []byte("correct horse")}}
	r, err := New(values, Options{Patterns: true})
	if err != nil {
		t.Fatal(err)
	}
	var parts [][]byte
	for _, v := range values {
		parts = append(parts, plainForms(v.Data)...)
		parts = append(parts, wrappedForms(v.Data)...)
	}
	for _, k := range rules {
		parts = append(parts, []byte(k.prefix), append([]byte(k.prefix), "Ab0Ab0Ab0Ab0Ab0Ab0.Ab0Ab0Ab0Ab0Ab0Ab0Ab0Ab0Ab0Ab0"...))
	}
	redacted := 0
	for range 3000 {
		var text []byte
		var ends []int
		for range random.IntN(12) {
			p := parts[random.IntN(len(parts))]
			from := random.IntN(len(p))
			p = p[from : from+random.IntN(len(p)-from+1)]
			if random.IntN(3) == 0 {
				p = parts[random.IntN(len(parts))]
			}
			for _, c := range p {
				if text = append(text, c); random.IntN(9) == 0 {
					text = append(text, "\n\r \t\\nrt"[random.IntN(8)])
				}
			}
			if random.IntN(2) == 0 {
				ends = append(ends, len(text))
			}
		}
		compareSkip(t, r, text, ends)
		if !bytes.Equal(r.Bytes(text), text) {
			redacted++
		}
	}
	if redacted < 500 {
		t.Errorf("only %d texts contain a value, want at least 500", redacted)
	}
}

// BenchmarkTexts measures the cost of redaction for different texts.
func BenchmarkTexts(b *testing.B) {
	source, err := os.ReadFile("stream_test.go")
	if err != nil {
		b.Fatal(err)
	}
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	var values []Value
	for i := range 3 {
		values = append(values, Value{"V", fmt.Appendf(nil, "%c%dAbCdEfGhIjKlMnOpQrStUv+/wX%dyZ", 'a'+i, i*i, i*31)})
	}
	r, err := New(values, Options{Patterns: true})
	if err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"source": source, "source in JSON": fmt.Appendf(nil, "%q", source), "noise": noise,
		"hex": fmt.Appendf(nil, "%x", noise[:1<<18]), "hex in groups": fmt.Appendf(nil, "% x", noise[:1<<18]),
		"blanks": bytes.Repeat([]byte("word\n                    "), 4000), "backslashes": bytes.Repeat([]byte(`\`), 1<<16),
	} {
		for kind, r := range map[string]*Redactor{"skip": r, "each byte": withoutSkip(r)} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				s := r.Stream()
				var out []byte
				for b.Loop() {
					for chunk := text; len(chunk) > 0; {
						n := min(len(chunk), 32<<10)
						out = s.Append(out[:0], chunk[:n])
						chunk = chunk[n:]
					}
				}
			})
		}
	}
}
