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

// passed passes lines of the interpreter to a page. It returns what the page shows, and the memory
// that was used for it.
func passed(t *testing.T, answer string) (lines []map[string]any, end cellEnd, taken uint64) {
	t.Helper()
	w := httptest.NewRecorder()
	w.Body = bytes.NewBuffer(make([]byte, 0, 64<<20))
	out := &cellLines{w: w, rc: http.NewResponseController(w)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	end, err := out.pass(strings.NewReader(answer))
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

// The output of a cell is in memory a few times and not dozens of times, whatever its characters
// are. Output that is too large is reported as such.
func TestLargeResults(t *testing.T) {
	const behind = `{"type":"stdout","text":"later"}` + "\n" + `{"type":"number_of_executions","execution_count":4}` + "\n" + `{"type":"end_of_execution"}` + "\n"
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
		said string
	}{
		"letters of HTML":   {`{"type":"result","text":"` + letters + `"}`, letters},
		"printed":           {`{"type":"stdout","text":"` + letters + `"}`, letters},
		"many fields":       {many.String(), "few"},
		"a large text":      {`{"type":"result","text":"` + long + `"}`, "[24 MB, too large"},
		"a large picture":   {`{"type":"result","text":"x","png":"` + long + `"}`, "[24 MB, too large"},
		"a large print":     {`{"type":"stderr","text":"` + long + `"}`, "[24 MB, too large"},
		"a large traceback": {`{"type":"error","name":"E","value":"v","traceback":"` + long + `"}`, "E: [24 MB, too large"},
	} {
		lines, end, taken := passed(t, c.line+"\n"+behind)
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
		if text, _ := value.(string); !strings.HasPrefix(text, c.said) {
			t.Errorf("%s: %.80v", name, value)
		}
		if limit := uint64(10 * maxShown); taken > limit {
			t.Errorf("%s: took %d MiB", name, taken>>20)
		}
	}
	if lines, end, _ := passed(t, `{"type":"stdout","text":"a"}`+"\n"+`{"type":"keepalive"`); len(lines) != 1 || !end.Lost {
		t.Errorf("%v, %+v", lines, end)
	}
	if lines, _, _ := passed(t, long); len(lines) != 0 {
		t.Errorf("%.80v", lines)
	}
}

// Texts that are passed on unchanged are still valid texts.
func TestLinesOfOtherForms(t *testing.T) {
	lines, _, _ := passed(t, `{"type":"stdout","text":{"a":1}}
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
