package e2b_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 500_000_000, time.UTC)

func TestMetrics(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fill(1, "k1")
	id := sandboxes.list[0].ID
	for i := range 3 {
		sandboxes.samples = append(sandboxes.samples, sandbox.Metric{
			At: noon.Add(time.Duration(i) * time.Minute), CPUCount: 1.5, CPUPercent: 12.345,
			MemUsed: 1, MemTotal: 2, MemCache: 3, DiskUsed: 4, DiskTotal: 5,
		})
	}
	var rows []map[string]any
	get := func(query string) {
		t.Helper()
		w := do(h, "GET", "/sandboxes/"+id+"/metrics"+query, "")
		rows = nil
		if err := json.Unmarshal(w.Body.Bytes(), &rows); err != nil || w.Code != 200 {
			t.Fatalf("GET /sandboxes/*/metrics*: got %d %s", w.Code, w.Body)
		}
	}
	get("")
	if len(rows) != 3 {
		t.Fatalf("%d samples", len(rows))
	}
	for field, want := range map[string]any{
		"timestamp": "2026-03-04T12:00:00.5Z", "timestampUnix": float64(noon.Unix()), "cpuCount": 2.0, "cpuUsedPct": 12.35,
		"memUsed": 1.0, "memTotal": 2.0, "memCache": 3.0, "diskUsed": 4.0, "diskTotal": 5.0,
	} {
		if rows[0][field] != want {
			t.Errorf("%s = %v, want %v", field, rows[0][field], want)
		}
	}
	if get("?start=1772625630&end=1772625680"); len(rows) != 1 {
		t.Errorf("got %d samples in a range with one sample", len(rows))
	}
	if get("?start=1872625630"); rows == nil || len(rows) != 0 {
		t.Errorf("got %v for a range in the future, want no samples", rows)
	}
	for _, query := range []string{"?start=x", "?end=-1", "?start=9223372036854775807", "?start=20&end=10", "?%zz"} {
		wantFailure(t, do(h, "GET", "/sandboxes/"+id+"/metrics"+query, ""), http.StatusBadRequest, "query_invalid", "")
	}
}

func TestMetricsOfSeveralSandboxes(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fill(2, "k1")
	sandboxes.samples = []sandbox.Metric{{At: noon, CPUCount: 1}, {At: noon.Add(time.Second), CPUCount: 2}}
	w := do(h, "GET", "/sandboxes/metrics?sandbox_ids="+sandboxes.list[0].ID+","+sandboxes.list[1].ID+","+unknownID, "")
	byID := object(t, w)["sandboxes"].(map[string]any)
	if len(byID) != 2 || byID[sandboxes.list[0].ID].(map[string]any)["cpuCount"] != 2.0 {
		t.Errorf("GET /sandboxes/metrics: got %v", byID)
	}
	wantFailure(t, do(h, "GET", "/sandboxes/metrics", ""), http.StatusBadRequest, "sandbox_ids_missing", "")
	wantFailure(t, do(h, "GET", "/sandboxes/metrics?sandbox_ids=A", ""), http.StatusBadRequest, "sandbox_id_invalid", "")
	many := strings.Repeat("i1,", 100) + "i1"
	wantFailure(t, do(h, "GET", "/sandboxes/metrics?sandbox_ids="+many, ""), http.StatusBadRequest, "sandbox_ids_invalid", "")
}

func TestLogs(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fill(1, "k1")
	id := sandboxes.list[0].ID
	for i, level := range []string{"debug", "info", "warn", "error", "strange"} {
		sandboxes.entries = append(sandboxes.entries, sandbox.LogEntry{
			At: noon.Add(time.Duration(i) * time.Second), Level: level, Message: "line of " + level,
		})
	}
	messages := func(query string) string {
		t.Helper()
		w := do(h, "GET", "/v2/sandboxes/"+id+"/logs"+query, "")
		var body struct {
			Logs []struct {
				Timestamp      time.Time
				Message, Level string
				Fields         map[string]string
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != 200 {
			t.Fatalf("answer: got %d %s", w.Code, w.Body)
		}
		var words []string
		for _, e := range body.Logs {
			if e.Fields == nil || e.Timestamp.IsZero() {
				t.Errorf("an entry lacks fields: %s", w.Body)
			}
			words = append(words, strings.TrimPrefix(e.Message, "line of "))
		}
		return strings.Join(words, " ")
	}
	for query, want := range map[string]string{
		"":                            "debug info warn error strange",
		"?limit=2":                    "debug info",
		"?direction=backward":         "strange error warn info debug",
		"?direction=backward&limit=1": "strange",
		"?cursor=1772625602500":       "warn error strange",
		"?cursor=1772625602500&direction=backward": "warn info debug",
		"?level=warn":     "warn error",
		"?search=err":     "error",
		"?search=nothing": "",
	} {
		if got := messages(query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	for _, query := range []string{"?direction=up", "?level=loud", "?cursor=x", "?cursor=-1"} {
		wantFailure(t, do(h, "GET", "/v2/sandboxes/"+id+"/logs"+query, ""), http.StatusBadRequest, "query_invalid", "")
	}
	wantFailure(t, do(h, "GET", "/v2/sandboxes/"+id+"/logs?limit=1001", ""), http.StatusBadRequest, "limit_invalid", "")

	first := object(t, do(h, "GET", "/sandboxes/"+id+"/logs?start=1772625603500&limit=1", ""))
	lines, entries := first["logs"].([]any), first["logEntries"].([]any)
	if len(lines) != 1 || len(entries) != 1 {
		t.Errorf("got logs of the first version %v, want one line and one entry", first)
	}
	if sandboxes.entries[0].Level != "debug" {
		t.Error("reading backward reversed the service's own slice")
	}
}

// TestF22LogLinesAreJSONObjects checks that each line is a JSON object with a level and a logger,
// because E2B's command line reads them.
func TestF22LogLinesAreJSONObjects(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fill(1, "k1")
	sandboxes.list[0].State = sandbox.Stopped // logs can be read after the end
	id := sandboxes.list[0].ID
	sandboxes.entries = []sandbox.LogEntry{
		{At: noon, Level: "warn", Message: `a "quoted" line`, Fields: map[string]string{"reason": "killed", "logger": "x", "level": "", "message": "y"}},
		{At: noon, Level: "strange", Message: "second"},
	}
	lines, _ := object(t, do(h, "GET", "/sandboxes/"+id+"/logs", ""))["logs"].([]any)
	want := []map[string]string{
		{"level": "warn", "logger": "sandbox", "message": `a "quoted" line`, "reason": "killed"},
		{"level": "info", "logger": "sandbox", "message": "second"},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	for i, line := range lines {
		var got map[string]string
		if err := json.Unmarshal([]byte(line.(map[string]any)["line"].(string)), &got); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, want[i]) {
			t.Errorf("line %d is %v, want %v", i, got, want[i])
		}
	}
	if len(sandboxes.entries[0].Fields) != 4 || sandboxes.entries[0].Fields["logger"] != "x" {
		t.Error("a line changed the service's own fields")
	}
	wantFailure(t, do(h, "GET", "/sandboxes/"+unknownID+"/logs", ""), http.StatusNotFound, "sandbox_not_found", "")
}
