package guestwire

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/crannog/crannog/internal/guest/gen/filesystempb"
)

// WaitDelay reads what SetWaitDelay sets: whole milliseconds, at least one, at most a week.
func TestWaitDelayRoundTrip(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: 0, -time.Second: 0, time.Nanosecond: time.Millisecond, 1500 * time.Microsecond: time.Millisecond,
		3 * time.Second: 3 * time.Second, maxWaitDelay: maxWaitDelay, 10 * maxWaitDelay: maxWaitDelay,
	} {
		h := http.Header{}
		SetWaitDelay(h, d)
		if got, err := WaitDelay(h); got != want || err != nil || (len(h) == 0) != (want == 0) {
			t.Errorf("WaitDelay of %v: got %v, %v with the headers %v, want %v", d, got, err, h, want)
		}
	}
}

// An invalid delay is an error. Otherwise a caller that intended a limit would wait for ever.
func TestWaitDelayRejectsInvalidValues(t *testing.T) {
	for _, text := range []string{"0", "-1", "1.5", "1s", "soon", "604800001", "18446744073709551616", " 5"} {
		if d, err := WaitDelay(http.Header{WaitDelayHeader: {text}}); err == nil {
			t.Errorf("WaitDelay of %q: got %v, want an error", text, d)
		}
	}
}

// An attacker who has replaced the interpreter may send any number of formats. Only known formats
// are decoded, and their values are not parsed.
func TestFormatsByName(t *testing.T) {
	var f Forms
	in := `{"text":"1","html":"<b>","png":"aGk=","json":{"a":[1]},"extra":{"x/y":1},"invented":"x","markdown":null,"chart":{}}`
	if err := json.Unmarshal([]byte(in), &f); err != nil {
		t.Fatal(err)
	}
	got := f.ByName()
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"chart", "extra", "html", "json", "markdown", "png", "text"}) {
		t.Errorf("formats: got %v", names)
	}
	if string(got["json"]) != `{"a":[1]}` || string(got["html"]) != `"<b>"` {
		t.Errorf("a value was changed: %s %s", got["json"], got["html"])
	}
}

// Malformed answers of a hostile guest are errors at every depth.
func TestMalformedMessagesAreRejected(t *testing.T) {
	b := Bounds{Items: 10, Within: 10}
	for name, data := range map[string][]byte{
		"truncated tag":          {0x80},
		"field number 0":         {0x00, 0x01},
		"shorter than announced": {0x0a, 5, 1},
		"truncated number":       {0x08, 0x80},
		"inside an entry":        {0x0a, 2, 0x0a, 9},
		"tag inside an entry":    {0x0a, 1, 0x80},
	} {
		if err := (codec{b}).Unmarshal(data, &filesystempb.ListDirResponse{}); err == nil {
			t.Errorf("%s: the message was accepted", name)
		}
	}
	if err := (codec{b}).Unmarshal(nil, "text"); err == nil {
		t.Error("Unmarshal accepted a string")
	}
	if _, err := (codec{b}).Marshal("text"); err == nil {
		t.Error("Marshal accepted a string")
	}
	var back filesystempb.EntryInfo
	sent := &filesystempb.EntryInfo{Name: "f", Size: 1 << 40}
	data, err := codec{b}.MarshalAppend([]byte("before"), sent)
	if err != nil || string(data[:6]) != "before" || proto.Unmarshal(data[6:], &back) != nil || !proto.Equal(sent, &back) {
		t.Errorf("encoding behind a prefix: got %q, %v, want the prefix and the same message", data, err)
	}
}
