package redaction

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// TestLargeResultsUseLittleMemory checks that a result of many MiB, which plain code can produce,
// is copied only a few times while it is redacted.
func TestLargeResultsUseLittleMemory(t *testing.T) {
	const size = 16 << 20
	m := testMask(t, sealedValue)
	secret := strings.Repeat("<", size) + sealedValue
	for name, c := range map[string]struct {
		line  string
		limit uint64 // allowed allocation, as a multiple of size
	}{
		"a text":             {`{"type":"result","text":"` + strings.Repeat("a b", size/3) + `"}`, 0},
		"a picture":          {`{"type":"result","png":"` + strings.Repeat("QUJD", size/4) + `"}`, 1},
		"HTML characters":    {`{"type":"result","html":"` + strings.Repeat("<", size) + `"}`, 0},
		"HTML with a secret": {`{"type":"result","html":"` + secret + `"}`, 5}, // 3 without the race detector, which makes encoding/json allocate more
		"many small secrets": {`{"type":"result","data":["` + strings.Repeat(sealedValue+`","`, size/30) + `"]}`, 12},
	} {
		line := []byte(c.line)
		r := newLines(strings.NewReader(""), m)
		m.Text().String(sealedValue) // the tables are made once
		m.Bytes().String(sealedValue)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r.line(line, true)
		runtime.ReadMemStats(&after)
		if bytes.Contains(r.out, []byte(sealedValue)) || !json.Valid(r.out) || len(r.out) > len(c.line)+1000 {
			t.Errorf("%s: %d bytes become %d: %.80q", name, len(c.line), len(r.out), r.out)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > c.limit*size+4<<20 {
			t.Errorf("%s: allocated %d MiB", name, taken>>20)
		}
	}
}

// TestBufferOfLargeLinesIsReleased checks that the buffer for a large line is released after the
// line was read.
func TestBufferOfLargeLinesIsReleased(t *testing.T) {
	const short = "k7-Zr8qP" // shorter than its replacement
	m := testMask(t, sealedValue, short)
	large := `{"type":"result","text":"` + strings.Repeat("a", 3<<20) + `"}` + "\n"
	small := `{"type":"stdout","text":"b ` + sealedValue + ` \n"}` + "\n"
	result := strings.Repeat(`{"type":"result","text":"c"}`+"\n"+`{"type":"result","text":"d `+short+` `+short+`"}`+"\n", 3000)
	small += result
	r := newLines(iotest.HalfReader(strings.NewReader(large+small+large+small)), m)
	var out bytes.Buffer
	if _, err := io.Copy(&out, struct{ io.Reader }{r}); err != nil {
		t.Fatal(err)
	}
	masked := strings.NewReplacer(sealedValue, "[redacted:KEY]", short, "[redacted:KEY]").Replace(small)
	if want := large + masked + large + masked; out.String() != want {
		t.Errorf("%d bytes, want %d", out.Len(), len(want))
	}
	if cap(r.out) > maxKeptBuffer || len(r.text[0].seen.Text) > 0 {
		t.Errorf("the buffer still has %d bytes", cap(r.out))
	}
}

// TestQuoteInPieces checks that strings that are quoted in pieces decode to the same text.
func TestQuoteInPieces(t *testing.T) {
	for _, letter := range []string{"a", "é", "€", "\U0001F600", `"`, "\\", "\n", "<", "\u2028", "\xff", "\xe2\x82", "\x80"} {
		for shift := range 5 {
			s := strings.Repeat("x", shift) + strings.Repeat(letter, 2*quotePiece/len(letter)+3)
			whole, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			var got, want string
			if err := json.Unmarshal(whole, &want); err != nil {
				t.Fatal(err)
			}
			quoted := appendQuoted([]byte("["), []byte(s))
			if err := json.Unmarshal(quoted[1:], &got); err != nil || got != want {
				t.Errorf("%q, %d: %d bytes, want %d: %v", letter, shift, len(got), len(want), err)
			}
		}
	}
}

// TestPictureFields checks that pictures are redacted in decoded and in encoded form.
func TestPictureFields(t *testing.T) {
	m := testMask(t, sealedValue)
	mask := jsonMask{text: m.Text(), pictures: m.Bytes()}
	inside := base64.StdEncoding.EncodeToString([]byte("PNG " + sealedValue + " end"))
	for _, text := range []string{`{"png":"` + inside + `"}`, `{"p\u006eg":"` + inside + `"}`, `{"jpeg":"` + inside[:8] + `\n` + inside[8:] + `"}`, `{"pdf":"! ` + sealedValue + `"}`} {
		before := strings.Clone(text)
		out := mask.mask([]byte(text))
		var fields map[string]string
		if err := json.Unmarshal(out, &fields); err != nil || text != before {
			t.Fatalf("%q: %v", out, err)
		}
		for _, value := range fields {
			data, _ := base64.StdEncoding.DecodeString(value)
			if strings.Contains(string(data), sealedValue) || strings.Contains(value, sealedValue) {
				t.Errorf("%q shows the value: %q", text, out)
			}
		}
	}
}
