package inside

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// copyToPage copies lines of the interpreter to a page. It returns the lines that the page shows,
// and the number of allocated bytes.
func copyToPage(t *testing.T, answer string) (lines []map[string]any, end cellEnd, allocated uint64) {
	t.Helper()
	w := httptest.NewRecorder()
	w.Body = bytes.NewBuffer(make([]byte, 0, 64<<20))
	out := &cellLines{w: w, rc: http.NewResponseController(w)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	end, err := out.copyLines(strings.NewReader(answer))
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(w.Body.Bytes()) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%.80q: %v", line, err)
		}
		lines = append(lines, m)
	}
	return lines, end, after.TotalAlloc - before.TotalAlloc
}

// TestLargeCellOutputUsesLittleMemory checks that the output of a cell is copied only a few times,
// whatever its characters are. Output that is too large is replaced with a note.
func TestLargeCellOutputUsesLittleMemory(t *testing.T) {
	const followingLines = `{"type":"stdout","text":"later"}` + "\n" + `{"type":"number_of_executions","execution_count":4}` + "\n" + `{"type":"end_of_execution"}` + "\n"
	letters := strings.Repeat("<", 6<<20)
	long := strings.Repeat("<", 24<<20)
	var many strings.Builder
	many.WriteString(`{"type":"result","text":"few"`)
	for i := range 400_000 {
		many.WriteString(`,"a` + strconv.Itoa(i) + `":0`)
	}
	many.WriteString("}")
	for name, c := range map[string]struct {
		line string
		want string // prefix of the shown text
	}{
		"letters of HTML":   {`{"type":"result","text":"` + letters + `"}`, letters},
		"printed":           {`{"type":"stdout","text":"` + letters + `"}`, letters},
		"many fields":       {many.String(), "few"},
		"a large text":      {`{"type":"result","text":"` + long + `"}`, "[24 MB, too large"},
		"a large picture":   {`{"type":"result","text":"x","png":"` + long + `"}`, "[24 MB, too large"},
		"a large print":     {`{"type":"stderr","text":"` + long + `"}`, "[24 MB, too large"},
		"a large traceback": {`{"type":"error","name":"E","value":"v","traceback":"` + long + `"}`, "E: [24 MB, too large"},
	} {
		lines, end, allocated := copyToPage(t, c.line+"\n"+followingLines)
		if end.Lost || end.Count != 4 || len(lines) != 2 || lines[1]["text"] != "later" {
			t.Errorf("%s: %d lines, %+v", name, len(lines), end)
			continue
		}
		value := lines[0]["text"]
		switch lines[0]["type"] {
		case "result":
			value = lines[0]["data"].(map[string]any)["text/plain"]
		case "error":
			value = lines[0]["traceback"]
		}
		if text, _ := value.(string); !strings.HasPrefix(text, c.want) {
			t.Errorf("%s: got %.80v, want prefix %.80q", name, value, c.want)
		}
		if limit := uint64(10 * maxShownLine); allocated > limit {
			t.Errorf("%s: allocated %d MiB", name, allocated>>20)
		}
	}
	if lines, end, _ := copyToPage(t, `{"type":"stdout","text":"a"}`+"\n"+`{"type":"keepalive"`); len(lines) != 1 || !end.Lost {
		t.Errorf("incomplete stream: got lines %v and end %+v, want one line and Lost", lines, end)
	}
	if lines, _, _ := copyToPage(t, long); len(lines) != 0 {
		t.Errorf("text that is not JSON: got lines %.80v, want none", lines)
	}
}

// TestMalformedLinesStayValidJSON checks lines with values of the wrong type and with invalid
// escapes.
func TestMalformedLinesStayValidJSON(t *testing.T) {
	lines, _, _ := copyToPage(t, `{"type":"stdout","text":{"a":1}}
{"type":"stdout","text":null}
{"type":"error","name":"E"}
{"type":"error","name":"E","value":"a\nb","traceback":["x"]}
{"type":"result","png":null,"text":"\u2028\ud800","is_main_result":true}
`)
	got, err := json.Marshal(lines)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"text":"","type":"stdout"},{"name":"E","traceback":"","type":"error","value":""},` +
		`{"data":{"text/plain":"\u2028` + "\ufffd" + `"},"main":true,"type":"result"}]`
	if string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}
