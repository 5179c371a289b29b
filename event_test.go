package crannog

import (
	"bufio"
	"errors"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// Code in the sandbox controls the data that the interpreter sends.
func FuzzReadEvent(f *testing.F) {
	for _, line := range []string{
		`{"type":"stdout","text":"hi\n","timestamp":"x"}`, `{"type":"result","text":"2","json":{"a":[1]},"is_main_result":true}`,
		`{"type":"error","name":"E","value":"v","traceback":"t"}`, `{"type":1}`, `null`, `[]`, `{"text":{"deep":1}}`, "{", "\x00",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		event, err := readEvent([]byte(line))
		if err != nil && (event.Type != "" || event.Result != nil) {
			t.Fatalf("readEvent returned both an event and an error: %+v, %v", event, err)
		}
	})
}

// readEvent drops unknown fields: a program that replaces the interpreter could fill the client's
// memory with them. It copies a picture out of its line only once.
func TestReadEventBoundsMemory(t *testing.T) {
	var many strings.Builder
	many.WriteString(`{"type":"result","is_main_result":true,"text":"x"`)
	for i := range 1_000_000 {
		many.WriteString(`,"a` + strconv.Itoa(i) + `":0`)
	}
	many.WriteString("}")
	picture := strings.Repeat("A", 20<<20)
	for _, c := range []struct {
		line     string
		form     string
		want     int // bytes
		maxBytes uint64
	}{
		{many.String(), "text", 3, 1 << 20},
		{`{"type":"result","text":"x","png":"` + picture + `"}`, "png", len(picture) + 2, 30 << 20},
	} {
		line := []byte(c.line)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		event, err := readEvent(line)
		runtime.ReadMemStats(&after)
		if err != nil || event.Text != "x" || len(event.Result[c.form]) != c.want || len(event.Result) > 2 {
			t.Errorf("%s: readEvent: error %v, %d forms", c.form, err, len(event.Result))
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > c.maxBytes {
			t.Errorf("%s: readEvent allocated %d MiB, want at most %d", c.form, allocated>>20, c.maxBytes>>20)
		}
	}
}

func TestNextLineBoundsLength(t *testing.T) {
	long := strings.Repeat("x", maxEvent-1)
	r := bufio.NewReader(strings.NewReader("a\n" + long + "\n\nb"))
	for _, want := range []int{2, maxEvent, 1, 1} {
		if line, err := nextLine(r); err != nil || len(line) != want {
			t.Errorf("nextLine: got %d bytes, want %d, error %v", len(line), want, err)
		}
	}
	if _, err := nextLine(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("nextLine at the end: error %v", err)
	}
	source := strings.NewReader(long + long)
	if _, err := nextLine(bufio.NewReader(source)); err == nil || source.Len() < maxEvent/2 {
		t.Errorf("nextLine of a line that is too long: error %v, and %d bytes unread", err, source.Len())
	}
}
