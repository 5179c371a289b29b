package asciicast

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

const ms = time.Millisecond

// record returns the recording that write makes.
func record(t testing.TB, bound int64, write func(*Writer)) string {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{Cols: 100, Rows: 30, Type: "xterm", Time: time.Unix(1700000000, 0), Command: "sh -c 'a<b'"}, bound)
	if err != nil {
		t.Fatal(err)
	}
	write(w)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if w.Size() != int64(out.Len()) {
		t.Errorf("Size: got %d, want %d", w.Size(), out.Len())
	}
	return out.String()
}

// replay reads a recording and returns its events.
func replay(t testing.TB, recording string) (events []Event) {
	t.Helper()
	r, err := NewReader(strings.NewReader(recording))
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return events
		}
		if err != nil {
			t.Fatalf("reading the recording %s: %v", recording, err)
		}
		events = append(events, e)
	}
}

// printed returns the output of all events.
func printed(events []Event) (text string) {
	for _, e := range events {
		if e.Code == Output {
			text += e.Data
		}
	}
	return text
}

// The output has exactly the format of the specification.
func TestWriterFormat(t *testing.T) {
	got := record(t, 0, func(w *Writer) {
		_ = w.Output(1*ms, 1, []byte("a\"\\\t\x1b[1m<é>\r\n"))
		_ = w.Resize(1501*ms+900*time.Microsecond, 90, 20)
		_ = w.Resize(1502*ms, 0, 20) // no size
		_ = w.Mark(1502*ms, "here")
		_ = w.Output(1400*ms, 2, []byte("late")) // time does not go back
		_ = w.Exit(2000*ms, 3)
	})
	want := `{"version":3,"term":{"cols":100,"rows":30,"type":"xterm"},"timestamp":1700000000,"command":"sh -c 'a<b'"}
[0.001,"o","a\"\\\t\u001b[1m<é>\r\n"]
[1.500,"r","90x20"]
[0.001,"m","here"]
[0.000,"o","late"]
[0.498,"x","3"]
`
	if got != want {
		t.Errorf("recording: got\n%s\nwant\n%s", got, want)
	}
	events := replay(t, got)
	if n := len(events); n != 5 || events[n-1] != (Event{At: 2000 * ms, Code: Exit, Data: "3"}) {
		t.Errorf("events of the recording: got %v, want 5 that end with exit status 3", events)
	}
}

// Characters that are split between chunks are joined, separately for each source. Only invalid
// bytes become U+FFFD.
func TestCharactersSplitBetweenChunksAreJoined(t *testing.T) {
	text := "a\u00e9\u20ac\U0001F600z"
	for cut := range len(text) {
		for cut2 := cut; cut2 < len(text); cut2++ {
			got := record(t, 0, func(w *Writer) {
				_ = w.Output(0, 1, []byte(text[:cut]))
				_ = w.Output(0, 2, []byte(text[:cut2]))
				_ = w.Output(0, 1, []byte(text[cut:cut2]))
				_ = w.Output(0, 1, []byte(text[cut2:]))
				_ = w.Output(0, 2, []byte(text[cut2:]))
				_ = w.Exit(0, 0)
			})
			all := printed(replay(t, got))
			if strings.ContainsRune(all, utf8.RuneError) || len(all) != 2*len(text) {
				t.Fatalf("cut at %d and %d: got %q", cut, cut2, all)
			}
		}
	}
	for in, want := range map[string]string{"\xff": "\ufffd", "a\xe2\x82": "a\ufffd", "\xe2\x82x": "\ufffd\ufffdx", "\xf0\x9f": "\ufffd", "\xc0\xaf": "\ufffd\ufffd"} {
		whole := record(t, 0, func(w *Writer) { _ = w.Output(0, 1, []byte(in)); _ = w.Exit(0, 0) })
		bytewise := record(t, 0, func(w *Writer) {
			for i := range len(in) {
				_ = w.Output(0, 1, []byte{in[i]})
			}
			_ = w.Exit(0, 0)
		})
		a, b := printed(replay(t, whole)), printed(replay(t, bytewise))
		if !strings.HasPrefix(a, want[:1]) || strings.Trim(a, "\ufffdax") != "" || strings.Trim(b, "\ufffdax") != "" || !strings.ContainsRune(b, utf8.RuneError) {
			t.Errorf("output %q: got %q, and %q byte by byte", in, a, b)
		}
	}
}

// A recording never exceeds its bound, has one marker for omitted output, and still has the exit
// status.
func TestWriterStopsAtBound(t *testing.T) {
	const bound = 64 << 10
	got := record(t, bound, func(w *Writer) {
		for range 100 {
			_ = w.Output(ms, 1, bytes.Repeat([]byte{0x1b}, 5000))
		}
		if !w.Truncated() {
			t.Error("Truncated: got false after the bound was reached")
		}
		_ = w.Mark(2*ms, "too late")
		_ = w.Exit(3*ms, 7)
	})
	if len(got) > bound || len(got) < bound/2 {
		t.Errorf("recording of %d bytes, want at most %d and at least half of that", len(got), bound)
	}
	events := replay(t, got)
	n := len(events)
	if events[n-1].Data != "7" || events[n-2].Data != LeftOut || events[n-3].Code != Output {
		t.Errorf("last events: got %.100v, want output, the marker and exit status 7", events[n-3:])
	}
	if _, err := NewWriter(io.Discard, Header{Command: strings.Repeat("x", 5000)}, 4096); err == nil {
		t.Error("NewWriter accepted a header that is larger than the bound")
	}
}

func TestWriteVersion2(t *testing.T) {
	r, err := NewReader(strings.NewReader(record(t, 0, func(w *Writer) {
		_ = w.Output(250*ms, 1, []byte("<hi>\n"))
		_ = w.Mark(1250*ms, "m")
		_ = w.Resize(2*time.Second, 80, 24)
		_ = w.Exit(3*time.Second, 0)
	}) + `[1.0,"o","cut`))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := WriteVersion2(&out, r); err != nil {
		t.Fatal(err)
	}
	want := `{"version":2,"width":100,"height":30,"timestamp":1700000000,"command":"sh -c 'a<b'"}
[0.25,"o","<hi>\n"]
[1.25,"m","m"]
[2,"r","80x24"]
`
	if out.String() != want {
		t.Errorf("version 2: got %s, want %s", out.String(), want)
	}
}

// Invalid recordings are rejected. A recording of another program can be read.
func TestReaderRejectsInvalidRecordings(t *testing.T) {
	head := `{"version":3,"term":{"cols":80,"rows":24}}` + "\n"
	for _, bad := range []string{
		"", "\n", "# c\n" + head, "[]\n", `{"version":2,"width":80,"height":24}` + "\n", `{"version":3,"term":{"cols":0,"rows":24}}` + "\n",
		`{"version":3,"term":{"cols":80,"rows":24},"later":1}` + "\n", strings.TrimSuffix(head, "\n") + "{}\n", strings.TrimSuffix(head, "\n"),
		head + "\n", head + `[1,"o"]` + "\n", head + `[1,"o","a","b"]` + "\n", head + `[-1,"o","a"]` + "\n", head + `["1","o","a"]` + "\n",
		head + `[null,"o","a"]` + "\n", head + `[1,null,"a"]` + "\n", head + `[1e300,"o","a"]` + "\n", head + `[1,"z","a"]` + "\n", head + `[1,"oo","a"]` + "\n",
		head + `[1,"r","80"]` + "\n", head + `[1,"r","0x0"]` + "\n", head + `[1,"x","a"]` + "\n", head + "[1,\"o\",\"\xff\"]\n", head + `[1,"o","a"]`,
		head + `[1,"o","` + strings.Repeat("a", maxLine) + `"]` + "\n",
	} {
		r, err := NewReader(strings.NewReader(bad))
		if err == nil {
			_, err = r.Next()
		}
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("reading %.80q: got %v, want an error", bad, err)
		}
	}
	otherProgram := `{"version":3,"term":{"cols":80,"rows":24,"version":"V","theme":{"fg":"#1","bg":"#2","palette":"#3"}},"idle_time_limit":1.5,"env":{"A":"b"},"tags":["x"]}` +
		"\r\n# a comment\n[0.5, \"i\", \"k\"]\n[ 0.25 ,\"o\",\"\"]\n"
	if events := replay(t, otherProgram); len(events) != 2 || events[1].At != 750*ms {
		t.Errorf("recording of another program: got %v, want 2 events, the second at 750 ms", events)
	}
}

// FuzzReader: for any content, reading ends, and a recording that was read can be written and read
// again.
func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"version":3,"term":{"cols":80,"rows":24}}` + "\n[0.5,\"o\",\"a\"]\n# c\n[1,\"r\",\"8x9\"]\n[0,\"x\",\"-1\"]\n"))
	f.Add([]byte(`{"version":3,"term":{"cols":80,"rows":24}}` + "\n[0.5,\"o\",\"\\ud800\"]\n[9e99"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := NewReader(bytes.NewReader(data))
		if err != nil {
			return
		}
		var again bytes.Buffer
		w, err := NewWriter(&again, Header{Cols: 80, Rows: 24}, 0)
		if err != nil {
			t.Fatal(err)
		}
		var want strings.Builder
		for n := 0; ; n++ {
			e, err := r.Next()
			if err != nil {
				break
			}
			if n > len(data) || !utf8.ValidString(e.Data) || e.At < 0 {
				t.Fatalf("event %d is invalid: %v", n, e)
			}
			if e.Code == Output {
				want.WriteString(e.Data)
				if err := w.Output(e.At, n%sources, []byte(e.Data)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := errors.Join(w.Exit(0, 0), w.Flush()); err != nil {
			t.Fatal(err)
		}
		if got := printed(replay(t, again.String())); got != want.String() {
			t.Fatalf("output that was written and read again: got %q, want %q", got, want.String())
		}
	})
}

// FuzzWriter: any bytes in any chunks become one valid recording. Its text equals that of
// bytes.ToValidUTF8.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("a\xe2\x82\xac\xff\x00\x1b"), 2)
	f.Fuzz(func(t *testing.T, data []byte, step int) {
		step = 1 + max(step, -step)%7
		got := record(t, 0, func(w *Writer) {
			for rest := data; len(rest) > 0; {
				n := min(step, len(rest))
				if err := w.Output(0, 3, rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			_ = w.FlushPartial(0)
		})
		text := printed(replay(t, got))
		if utf8.Valid(data) && text != string(data) {
			t.Fatalf("output of the recording: got %q, want %q", text, data)
		}
		for line := range strings.Lines(got) {
			if !json.Valid([]byte(line)) {
				t.Fatalf("the line %q is not valid JSON", line)
			}
		}
	})
}

func BenchmarkOutput(b *testing.B) {
	data := []byte(strings.Repeat(fmt.Sprintln("2026-11-21 12:00:00 INFO request served in 12 ms path=/v1/items"), 500))[:32<<10]
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		w, err := NewWriter(io.Discard, Header{}, 0)
		if err != nil {
			b.Fatal(err)
		}
		_ = w.Output(0, 1, data)
	}
}
