package mcpserver

import (
	"encoding/base64"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestStateIsSigned(t *testing.T) {
	k, now := newStateKey(), time.Now()
	a := promptState{Sandbox: "i1", Approval: "a1", Target: "example.com:443", Until: now.Add(time.Minute).Unix()}
	text := k.sign(a)
	if got, err := k.check(text, now); err != nil || got != a {
		t.Fatalf("state of the prompt: got %+v %v", got, err)
	}
	if _, err := k.check(text, now.Add(2*time.Minute)); err == nil {
		t.Error("an expired state is accepted")
	}
	if _, err := newStateKey().check(text, now); err == nil {
		t.Error("another server's state is accepted")
	}
	raw, _ := base64.RawURLEncoding.DecodeString(text)
	for i := range raw {
		changed := append([]byte(nil), raw...)
		changed[i] ^= 1
		if _, err := k.check(base64.RawURLEncoding.EncodeToString(changed), now); err == nil {
			t.Fatalf("a change of byte %d is accepted", i)
		}
	}
	for _, s := range []string{"", "x", text + "AA", text[1:], strings.Repeat("A", 5000)} {
		if _, err := k.check(s, now); err == nil {
			t.Errorf("%.20q is accepted", s)
		}
	}
}

func FuzzState(f *testing.F) {
	k := newStateKey()
	f.Add("")
	f.Add(newStateKey().sign(promptState{Sandbox: "i1"}))
	f.Fuzz(func(t *testing.T, s string) {
		if a, err := k.check(s, time.Unix(0, 0)); err == nil {
			t.Fatalf("%q is accepted as %+v", s, a)
		}
	})
}

func FuzzURI(f *testing.F) {
	for _, s := range []string{
		"sandbox://i1/logs/3", "sandbox://i1/logs/3?offset=9", "sandbox://i1/etc/hosts", "sandbox://i1/../x", "sandbox://i1/%00",
		"sandbox://u:p@i1/x", "sandbox://i1:80/x", "http://i1/x", "sandbox:///x", "sandbox://i1//logs/3", "sandbox://i1/a%2fb",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseURI(s)
		if err != nil {
			return
		}
		if a.sandbox == "" || (a.log > 0) == (a.path != "") || a.offset < 0 || strings.ContainsRune(a.path, 0) {
			t.Fatalf("%q is %+v", s, a)
		}
		for part := range strings.SplitSeq(a.path, "/") {
			if part == ".." {
				t.Fatalf("%q leaves the root: %q", s, a.path)
			}
		}
	})
}

func FuzzHostPort(f *testing.F) {
	for _, s := range []string{"example.com", "example.com:8443", "*.x", "a b", "http://x", "x:0", "x:99999", "x:+1", "EXAMPLE.com."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, port, err := hostPort(s)
		if err != nil {
			return
		}
		if port < 1 || port > 65535 || host == "" || strings.ContainsAny(host, "*/:@ \n\x00") || host != strings.ToLower(host) {
			t.Fatalf("%q is %q:%d", s, host, port)
		}
	})
}

func TestGuard(t *testing.T) {
	g := newGuard("crannog.example.com:443", "localhost:7070")
	for _, c := range []struct {
		host, origin string
		ok           bool
	}{
		{"127.0.0.1:7070", "", true}, {"[::1]:7070", "", true}, {"localhost:7070", "", true}, {"10.0.0.5", "", true},
		{"crannog.example.com", "", true}, {"CRANNOG.example.com:443", "https://crannog.example.com", true}, {"x.localhost:7070", "", true},
		{"evil.example", "", false}, {"", "", false}, {"crannog.example.com.evil.example", "", false}, {"localhost.evil.example", "", false},
		{"127.0.0.1.evil.example", "", false}, {"127.0.0.1:7070", "http://evil.example", false}, {"localhost:7070", "null", false},
		{"localhost:7070", "http://localhost:3000", true}, {"localhost:7070", "file://", false},
	} {
		r := httptest.NewRequest("POST", "/mcp", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if err := g.check(r); (err == nil) != c.ok {
			t.Errorf("host %q origin %q: %v", c.host, c.origin, err)
		}
	}
}

func TestViews(t *testing.T) {
	for path, ok := range map[string]bool{
		"/mcp": true, "/mcp/s/dev": true, "/mcp?tools=core": true, "/mcp?tools=core,admin&read_only=true": true,
		"/mcp/": false, "/mcp/s/": false, "/mcp/s/a/b": false, "/mcp/x": false, "/mcp?tools=browser": false, "/mcp?readonly=true": false,
		"/mcp?read_only=1": false, "/mcp?tools=core&tools=admin": false,
		// A setting that cannot be read is an error: it could have been read_only.
		"/mcp?read_only=true;tools=core": false, "/mcp?read_only=true%zz": false, "/mcp?read_only=tru%65": true, "/mcp?%zz": false,
	} {
		if _, err := viewOf(httptest.NewRequest("POST", path, nil)); (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestEdits(t *testing.T) {
	for name, c := range map[string]struct {
		edits []edit
		want  string // "" if the edit is refused
	}{
		"one":       {[]edit{{Old: "b", New: "x"}}, "a x a"},
		"chain":     {[]edit{{Old: "b", New: "cc"}, {Old: "cc", New: "d"}}, "a d a"},
		"all":       {[]edit{{Old: "a", New: "x", All: true}}, "x b x"},
		"ambiguous": {[]edit{{Old: "a", New: "x"}}, ""},
		"missing":   {[]edit{{Old: "b", New: "x"}, {Old: "z", New: "y"}}, ""},
		"empty":     {[]edit{{Old: "", New: "y"}}, ""},
		"same":      {[]edit{{Old: "b", New: "b"}}, ""},
		"huge":      {[]edit{{Old: "b", New: strings.Repeat("x", maxEdited)}}, ""},
	} {
		got, _, err := replace("a b a", c.edits, "f")
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}
