package observe

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit/asciicast"
	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/audit/recording"
)

// recordCell passes a response of the interpreter through a tap, in pieces of size step. It returns
// the audit entry of the end, the recorded output, and the number of allocated bytes.
func recordCell(t *testing.T, step int, answer string) (e Ended, shown string, allocated uint64) {
	t.Helper()
	r := &audittest.Log{}
	recordings := recording.New(recording.Options{Dir: filepath.Join(t.TempDir(), "recordings")})
	tp, err := New(Deps{Audit: r, Recordings: recordings, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer tp.Close()
	defer recordings.Close()
	cmd, err := tp.begin(Call{Sandbox: "box1", Actor: "a"}, Started{How: HowCell})
	if err != nil {
		t.Fatal(err)
	}
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-ndjson"}}, Body: io.NopCloser(strings.NewReader(answer))}
	if err := cmd.lines(res); err != nil {
		t.Fatal(err)
	}
	sum, piece := sha256.New(), make([]byte, step)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = io.CopyBuffer(struct{ io.Writer }{sum}, res.Body, piece)
	runtime.ReadMemStats(&after)
	if want := sha256.Sum256([]byte(answer)); err != nil || !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Errorf("the caller got a changed response: %v", err)
	}
	cmd.finish()
	f, err := recordings.Open("box1", cmd.recording.N())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	reader, err := asciicast.NewReader(f)
	for err == nil {
		var event asciicast.Event
		if event, err = reader.Next(); err == nil && event.Code == asciicast.Output {
			shown += event.Data
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return lastEnd(t, r), shown, after.TotalAlloc - before.TotalAlloc
}

// TestLongLinesAreNotBuffered checks a line of many MiB, which simple code can print: the recording
// has its beginning, and lines after it are processed as usual (P45).
func TestLongLinesAreNotBuffered(t *testing.T) {
	long := strings.Repeat("A", 12<<20)
	const end = `{"type":"stdout","text":"later\n"}` + "\n" + `{"type":"end_of_execution"}` + "\n"
	for name, c := range map[string]struct {
		line, failed string
		shown        string // beginning of the recorded output
		minLength    int    // of what is recorded
	}{
		"a picture":          {`{"type":"result","text":"<Figure>","png":"` + long + `"}`, "", "<Figure>\n" + truncationNote + "\nlater\n", 0},
		"a text":             {`{"type":"result","text":"a` + long + `"}`, "", "aAAA", maxLine - 100},
		"within a character": {`{"type":"result","text":"` + strings.Repeat(`\u00e9`, 2<<20) + `"}`, "", "ééé", maxLine/3 - 100},
		"an error":           {`{"type":"error","name":"E","value":"v","traceback":"t` + long + `"}`, "E", "tAAA", maxLine - 100},
		"an object":          {`{"type":"result","data":{"a":[` + strings.Repeat("1,", 6<<20) + `1]},"text":"x"}`, "", truncationNote, 0},
		"no JSON":            {long, "", "later", 0},
		"a picture, shorter": {`{"type":"result","text":"<Figure>","png":"` + long[:2<<20] + `"}`, "", "<Figure>\nlater\n", 0},
	} {
		for _, step := range []int{32 << 10, 7 << 20} {
			e, shown, allocated := recordCell(t, step, c.line+"\n"+end)
			if e.Exit == nil || e.Error != c.failed || (*e.Exit == 1) != (c.failed != "") || e.Stdout == nil || e.Stdout.Bytes != 6 {
				t.Errorf("%s: %s", name, text(t, e))
			}
			if e.Truncated != (len(c.line) > maxLine) {
				t.Errorf("%s: truncated %t", name, e.Truncated)
			}
			if !strings.HasPrefix(shown, c.shown) || !strings.HasSuffix(shown, "later\n") || len(shown) < c.minLength || len(shown) > maxLine+1000 {
				t.Errorf("%s: %d bytes: %.80q", name, len(shown), shown)
			}
			if limit := uint64(13 * maxLine); allocated > limit {
				t.Errorf("%s, in pieces of %d: took %d MiB", name, step, allocated>>20)
			}
		}
	}
}

// TestLineBufferIsReleased checks that the memory for a long line is freed before the code ends,
// which may take hours.
func TestLineBufferIsReleased(t *testing.T) {
	tp, _ := newTap(t, nil)
	cmd, err := tp.begin(Call{Sandbox: "box1", Actor: "a"}, Started{How: HowCell})
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.finish()
	l := &lines{cmd: cmd}
	for _, size := range []int{1 << 20, maxLine - 100, maxLine + 100} {
		line, err := json.Marshal(map[string]string{"type": "result", "png": strings.Repeat("A", size)})
		if err != nil {
			t.Fatal(err)
		}
		l.parse(line[:size/2])
		l.parse(line[size/2:])
		if cap(l.held) > 2*maxLine {
			t.Errorf("line of %d bytes: the buffer has %d bytes", size, cap(l.held))
		}
		l.parse([]byte("\n"))
		if cap(l.held) > maxHeld {
			t.Errorf("after a line of %d bytes, the buffer still has %d bytes", size, cap(l.held))
		}
	}
}
