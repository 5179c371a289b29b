package utf8text_test

import (
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/utf8text"
)

// start returns a request with texts that are not UTF-8.
func start() *processpb.StartRequest {
	dir := "/d\xff"
	return &processpb.StartRequest{Process: &processpb.ProcessConfig{
		Cmd: "p%\xfe", Args: []string{"", "%41", "é\xff+ /"}, Envs: map[string]string{"A": "1", "B\xff": "\x80"}, Cwd: &dir,
	}}
}

func TestF10EscapedStart(t *testing.T) {
	m, h := start(), http.Header{}
	utf8text.EscapeStart(h, m)
	if _, err := proto.Marshal(m); err != nil || h.Get(utf8text.Header) == "" || m.GetProcess().GetCmd() != "" {
		t.Fatalf("EscapeStart: got %v, %v, %v, want a valid message with the header and no cmd", err, h, m)
	}
	if err := utf8text.UnescapeStart(h, m); err != nil || !proto.Equal(m, start()) {
		t.Errorf("UnescapeStart: got %v, %v, want the original request", m, err)
	}
	// A request whose texts are UTF-8 stays unchanged, because older guests do not know the header.
	plain := &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "a", Args: []string{"%41"}}}
	h = http.Header{}
	utf8text.EscapeStart(h, plain)
	if err := utf8text.UnescapeStart(h, plain); err != nil || len(h) > 0 || plain.GetProcess().GetCmd() != "a" || plain.GetProcess().GetArgs()[0] != "%41" {
		t.Errorf("valid text: got %v, %v", h, plain)
	}
	for _, bad := range []*processpb.ProcessConfig{{Cmd: "a", Args: []string{"b"}}, {}, {Args: []string{"%4"}}} {
		if utf8text.UnescapeStart(http.Header{utf8text.Header: {"1"}}, &processpb.StartRequest{Process: bad}) == nil {
			t.Errorf("UnescapeStart accepted %v", bad)
		}
	}
}

func TestF10FindInvalid(t *testing.T) {
	for document, want := range map[string]string{
		`{"a":["x","` + "\xff" + `"]}`:                "a[1]",
		`{"process":{"envs":{"A":"` + "\x80" + `"}}}`: "process.envs.A",
		`{"e":{"` + "\xff" + `":"x"}}`:                "e (a name in it)",
		`{"a":"\ud800"}`:                              "a",
		`{"a":"\udc00\ud800"}`:                        "a",
		`{"a":"\ud83d\ude00é\\ud800","b":1}`:          "",
		`no JSON ` + "\xff":                           "",
	} {
		if got := utf8text.FindInvalid([]byte(document)); got != want {
			t.Errorf("FindInvalid of %q: got %q, want %q", document, got, want)
		}
	}
}
