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

// What one side sets, the other reads: in whole milliseconds, at least one, at most a week.
func TestWaitDelay(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: 0, -time.Second: 0, time.Nanosecond: time.Millisecond, 1500 * time.Microsecond: time.Millisecond,
		3 * time.Second: 3 * time.Second, maxWaitDelay: maxWaitDelay, 10 * maxWaitDelay: maxWaitDelay,
	} {
		h := http.Header{}
		SetWaitDelay(h, d)
		if got, err := WaitDelay(h); got != want || err != nil || (len(h) == 0) != (want == 0) {
			t.Errorf("%v became %v, %v with %v", d, got, err, h)
		}
	}
}

// A delay that does not parse is an error: a caller that meant a limit would otherwise wait for
// ever.
func TestWaitDelayRefusesOtherValues(t *testing.T) {
	for _, text := range []string{"0", "-1", "1.5", "1s", "soon", "604800001", "18446744073709551616", " 5"} {
		if d, err := WaitDelay(http.Header{WaitDelayHeader: {text}}); err == nil {
			t.Errorf("%q is %v", text, d)
		}
	}
}

// A replaced interpreter may send any number of forms. Only the known ones are kept, unparsed.
func TestFormsByName(t *testing.T) {
	var f Forms
	in := `{"text":"1","html":"<b>","png":"aGk=","json":{"a":[1]},"extra":{"x/y":1},"invented":"x","markdown":null,"chart":{}}`
	if err := json.Unmarshal([]byte(in), &f); err != nil {
		t.Fatal(err)
	}
	got := f.ByName()
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"chart", "extra", "html", "json", "markdown", "png", "text"}) {
		t.Errorf("forms are %v", names)
	}
	if string(got["json"]) != `{"a":[1]}` || string(got["html"]) != `"<b>"` {
		t.Errorf("a form changed: %s %s", got["json"], got["html"])
	}
}

// Malformed answers of a hostile guest are errors at every depth.
func TestMalformedMessages(t *testing.T) {
	b := Bounds{Items: 10, Within: 10}
	for name, data := range map[string][]byte{
		"half a tag":             {0x80},
		"field number 0":         {0x00, 0x01},
		"shorter than announced": {0x0a, 5, 1},
		"half a number":          {0x08, 0x80},
		"inside an entry":        {0x0a, 2, 0x0a, 9},
		"tag inside an entry":    {0x0a, 1, 0x80},
	} {
		if err := (codec{b}).Unmarshal(data, &filesystempb.ListDirResponse{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := (codec{b}).Unmarshal(nil, "text"); err == nil {
		t.Error("a text is read as a message")
	}
	if _, err := (codec{b}).Marshal("text"); err == nil {
		t.Error("a text is written as a message")
	}
	var back filesystempb.EntryInfo
	sent := &filesystempb.EntryInfo{Name: "f", Size: 1 << 40}
	data, err := codec{b}.MarshalAppend([]byte("before"), sent)
	if err != nil || string(data[:6]) != "before" || proto.Unmarshal(data[6:], &back) != nil || !proto.Equal(sent, &back) {
		t.Errorf("%q: %v", data, err)
	}
}
