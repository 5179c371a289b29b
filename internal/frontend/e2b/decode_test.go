package e2b

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/fault/httpstatus"
	"github.com/crannog/crannog/internal/sandbox"
)

func TestDecode(t *testing.T) {
	for name, c := range map[string]struct {
		body    io.Reader
		emptyOK bool
		code    string
	}{
		"an object":      {strings.NewReader(` {"a":1,"later":2}`), false, ""},
		"empty, allowed": {strings.NewReader(" \n"), true, ""},
		"empty":          {strings.NewReader(""), false, "body_missing"},
		"a list":         {strings.NewReader("[]"), false, "body_invalid"},
		"incomplete":     {strings.NewReader(`{"a":`), false, "body_invalid"},
		"two objects":    {strings.NewReader(`{"a":1}{"a":2}`), false, "body_invalid"},
		"wrong type":     {strings.NewReader(`{"a":"1"}`), false, "field_invalid"},
		"too large":      {strings.NewReader(`{"b":"` + strings.Repeat("x", maxBody) + `"}`), false, httpstatus.BodyTooLarge},
		"read error":     {iotest.ErrReader(errors.New("connection reset")), false, "body_unreadable"},
	} {
		var into struct{ A int }
		r := httptest.NewRequest("POST", "/", c.body)
		err := decode(httptest.NewRecorder(), r, &into, c.emptyOK)
		if code := fault.CodeOf(err); (err == nil) != (c.code == "") || err != nil && (code != c.code || fault.KindOf(err) != fault.Invalid) {
			t.Errorf("%s: %v, want %q", name, err, c.code)
		}
		if want := map[bool]int{true: 1}[name == "an object"]; c.code == "" && into.A != want {
			t.Errorf("%s: %+v", name, into)
		}
	}
}

func TestParseMetadata(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"": nil, "a%3Db": {"a": "b"}, "a%3Db%26c%3D": {"a": "b", "c": ""}, "a%3D1%2526b%26%26": {"a": "1&b"}, "a%3Db%26a%3Db": {"a": "b"},
	} {
		if got, err := parseMetadata(text); err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"%", "a", "%3Db", "%25%3Db", "a%3D%25", "a%3Db%26a%3Dc"} {
		if got, err := parseMetadata(text); fault.CodeOf(err) != "metadata_filter_invalid" {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
}

// TestRoutesNeedACaller checks that a request without a caller reaches no route. Otherwise it would
// see every sandbox.
func TestRoutesNeedACaller(t *testing.T) {
	a := &api{Deps: Deps{Log: slog.New(slog.DiscardHandler)}, mux: http.NewServeMux()}
	called := false
	a.handle("GET /x", func(http.ResponseWriter, *http.Request, sandbox.Principal) error {
		called = true
		return fault.New(fault.Exhausted, "busy", "too much").WithHint("wait").WithRetryAfter(1)
	})
	get := func(r *http.Request) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		a.mux.ServeHTTP(w, r)
		return w
	}
	r := httptest.NewRequest("GET", "/x", nil)
	for _, r := range []*http.Request{r, r.WithContext(withPrincipal(r.Context(), sandbox.Principal{}))} {
		if w := get(r); w.Code < 400 || called {
			t.Errorf("request without a key: got %d %s", w.Code, w.Body)
		}
	}
	w := get(r.WithContext(withPrincipal(r.Context(), sandbox.Principal{KeyID: "k"})))
	if !called || w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "too much; wait") || w.Header().Get("Retry-After") != "1" {
		t.Errorf("request with a key: got %d %s %v", w.Code, w.Body, w.Header())
	}
}

// TestDefaultRequestSetsOnlyTemplate checks the request that warm sandboxes have to match.
func TestDefaultRequestSetsOnlyTemplate(t *testing.T) {
	req, err := DefaultRequest("base")
	if err != nil || req.Template != "base" || len(req.Env) != 0 || len(req.Metadata) != 0 {
		t.Errorf("default request: got %+v %v", req, err)
	}
}
