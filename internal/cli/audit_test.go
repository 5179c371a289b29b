package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/crannog/crannog/api"
)

// hostile is a text with control characters, as a program in a sandbox may choose it.
const hostile = "a\nb\r\x1b]0;gone\x07\x1b[2J\u202Etxt\u2066\u2028\u009b31m\u200b\x00"

// P30: text that a program chose can neither leave its line nor act on the reader's terminal.
func TestEntryOutputIsInert(t *testing.T) {
	text, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	data := func(form string) json.RawMessage { return json.RawMessage(strings.ReplaceAll(form, "X", string(text))) }
	for kind, d := range map[string]json.RawMessage{
		"exec":    data(`{"pid":3,"argv":["sh",X],"cwd":X}`),
		"exit":    data(`{"pid":3,"code":1,"took_ns":5000000}`),
		"file":    data(`{"op":"created","path":X,"size":4096}`),
		"flow":    data(`{"effect":"deny","kind":"http","host":X,"path":X,"rule":X,"method":X,"port":443}`),
		"action":  data(`{X:X,"list":[X],"n":{X:1}}`),
		"strange": data(`X`),
		"broken":  json.RawMessage("{\x1b"),
		hostile:   data(`{"pid":X}`),
	} {
		e := api.Entry{Kind: kind, Sandbox: hostile, Actor: hostile, Source: hostile, Prev: hostile, Data: d, Time: time.Now()}
		page := entryPage(e)
		for _, line := range append(page, entryLine(e)) {
			for _, r := range line {
				if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
					t.Errorf("%q: %U in %q", kind, r, line)
				}
			}
		}
		if !strings.Contains(strings.Join(page, "\n"), "entry        0") {
			t.Errorf("entryPage(%q): got %q", kind, page)
		}
	}
}

func TestEntrySummary(t *testing.T) {
	for _, c := range []struct{ kind, data, want string }{
		{"exec", `{"pid":7,"argv":["sh","-c","echo 'x'"],"program":"/bin/sh"}`, `[7] sh -c 'echo '\''x'\'''`},
		{"exit", `{"pid":7,"code":0,"signal":9,"took_ns":1500000}`, "[7] signal 9 after 1.5ms"},
		{"file", `{"op":"created","path":"/work/a","size":2048}`, "created /work/a 2.0KiB"},
		{"flow", `{"effect":"allow","kind":"http","method":"GET","host":"example.com","port":443,"path":"/x","rule":"host:example.com","status":200}`,
			"allow http GET https://example.com/x rule=host:example.com 200"},
		{"action", `{"do":"create","outcome":"ok"}`, "do=create outcome=ok"},
		{"sandbox.started", `{"limits":{"pids":5},"level":""}`, `limits={"pids":5}`},
		{"gap", ``, ""},
		{"action", `[1]`, "data=[1]"},
	} {
		if got := summary(api.Entry{Kind: c.kind, Data: json.RawMessage(c.data)}); got != c.want {
			t.Errorf("summary of %s %s: got %q, want %q", c.kind, c.data, got, c.want)
		}
	}
}

func TestPointInTime(t *testing.T) {
	now := time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "2026-05-01T10:00:00Z": time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC),
		"2026-05-01": time.Date(2026, 5, 1, 0, 0, 0, 0, time.Local),
	} {
		if got, err := pointInTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("pointInTime(%q): got %v, error %v", text, got, err)
		}
	}
	for _, text := range []string{"soon", "-1h", "2026-13-01"} {
		if _, err := pointInTime(text, now); err == nil {
			t.Errorf("pointInTime(%q): got no error", text)
		}
	}
}
