package guest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const (
	access  = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"
	control = "control-secret"
)

// testGuest is a guest that runs as the current user, with requests to it.
type testGuest struct {
	*guest.Guest
	home string
}

// newTestGuest returns a guest whose configuration change may modify.
func newTestGuest(t testing.TB, change func(*guest.Config, *guest.Options)) *testGuest {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	user := identity.User{Name: "user", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: home}
	cfg := guest.Config{
		SandboxID: "isandbox", TemplateID: "template", AccessToken: access, ControlToken: control,
		DefaultUser: "user", Env: map[string]string{"MINE": "yes"},
		MemoryBytes: 1 << 30, MilliCPU: 1500, DiskBytes: 4 << 30,
	}
	opts := guest.Options{Users: identity.Fixed{user}}
	if change != nil {
		change(&cfg, &opts)
	}
	g, err := guest.New(cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return &testGuest{Guest: g, home: home}
}

// call sends a request with headers given as pairs.
func (b *testGuest) call(t testing.TB, method, target string, body io.Reader, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, target, body)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, r)
	return w
}

func TestAccessToken(t *testing.T) {
	b := newTestGuest(t, nil)
	for _, path := range []string{"/process.Process/List", "/filesystem.Filesystem/Stat", "/envs", "/metrics", "/files/compose", "/", "/init", "/freeze", "/unknown"} {
		for _, token := range []string{"", "wrong", access + "x", control} {
			w := b.call(t, "POST", path, strings.NewReader("{}"), "Content-Type", "application/json", "X-Access-Token", token)
			want := `{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}` + "\n"
			if w.Code != 401 || w.Body.String() != want {
				t.Errorf("%s with the token %q: got %d %s, want 401 %s", path, token, w.Code, w.Body, want)
			}
		}
	}
	w := b.call(t, "POST", "/process.Process/List", strings.NewReader("{}"), "Content-Type", "application/json", "X-Access-Token", access)
	if w.Code != 200 || w.Body.String() != "{}" {
		t.Errorf("with the token: %d %s", w.Code, w.Body)
	}
	if w := b.call(t, "GET", "/health", nil); w.Code != 204 {
		t.Errorf("GET /health: got status %d, want 204", w.Code)
	}
	if w := b.call(t, "POST", "/init", nil, "X-Access-Token", access); w.Code != 404 {
		t.Errorf("POST /init: got status %d, want 404", w.Code)
	}
}

func TestNewRequiresTokensAndUser(t *testing.T) {
	users := guest.Options{Users: identity.Fixed{{Name: "user"}}}
	good := guest.Config{AccessToken: "a", ControlToken: "c", DefaultUser: "user"}
	for name, change := range map[string]func(*guest.Config){
		"access":  func(c *guest.Config) { c.AccessToken = "" },
		"control": func(c *guest.Config) { c.ControlToken = "" },
		"user":    func(c *guest.Config) { c.DefaultUser = "no-such-user" },
	} {
		bad := good
		change(&bad)
		if _, err := guest.New(bad, users); err == nil {
			t.Errorf("New accepted a configuration without a valid %s", name)
		}
	}
	g, err := guest.New(good, users)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

func TestControlNeedsToken(t *testing.T) {
	b := newTestGuest(t, nil)
	for _, headers := range [][]string{nil, {guest.ControlHeader, ""}, {guest.ControlHeader, "wrong"}, {"X-Access-Token", access}, {guest.ControlHeader, access}} {
		for _, path := range []string{guest.PathReady, guest.PathUpdate, guest.PathLookups, guest.PathTree, guest.PathPack, guest.PathCensus, guest.PathSignal} {
			if w := b.call(t, "POST", path, strings.NewReader("{}"), headers...); w.Code != 404 {
				t.Errorf("%s with the headers %v: got status %d, want 404", path, headers, w.Code)
			}
		}
	}
	if w := b.call(t, "GET", guest.PathReady, nil, guest.ControlHeader, control); w.Code != 204 {
		t.Errorf("ready: got status %d, want 204", w.Code)
	}
}

func TestUpdate(t *testing.T) {
	ended := make(chan struct{})
	b := newTestGuest(t, func(_ *guest.Config, o *guest.Options) { o.End = func() { close(ended) } })
	update := func(body string, want int) {
		t.Helper()
		if w := b.call(t, "POST", guest.PathUpdate, strings.NewReader(body), guest.ControlHeader, control); w.Code != want {
			t.Fatalf("update %s: got status %d, want %d", body, w.Code, want)
		}
	}
	envs := func(token string) (int, map[string]string) {
		w := b.call(t, "GET", "/envs", nil, "X-Access-Token", token)
		var got map[string]string
		if w.Code == 200 {
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
		}
		return w.Code, got
	}
	if _, got := envs(access); got["MINE"] != "yes" || got["E2B_SANDBOX"] != "true" || got["E2B_SANDBOX_ID"] != "isandbox" || got["E2B_TEMPLATE_ID"] != "template" {
		t.Errorf("variables of the sandbox: got %v", got)
	}
	update("not json", 400)
	update(`{"access_token":"second","env":{"NEW":"1"}}`, 204)
	if code, _ := envs(access); code != 401 {
		t.Errorf("the old token still works: %d", code)
	}
	if _, got := envs("second"); got["NEW"] != "1" || got["MINE"] != "" || got["E2B_SANDBOX"] != "true" {
		t.Errorf("variables after the update: %v", got)
	}
	update(`{}`, 204)
	if _, got := envs("second"); got["NEW"] != "1" {
		t.Errorf("an empty update changed the variables: %v", got)
	}
	update(`{"end_at":"`+time.Now().Add(time.Hour).Format(time.RFC3339Nano)+`"}`, 204)
	select {
	case <-ended:
		t.Fatal("the sandbox ended an hour early")
	default:
	}
	update(`{"end_at":"`+time.Now().Format(time.RFC3339Nano)+`"}`, 204)
	select {
	case <-ended:
	case <-hosttest.Late():
		t.Fatal("the sandbox did not end after its end time")
	}
}

func TestPreflight(t *testing.T) {
	b := newTestGuest(t, nil)
	w := b.call(t, "OPTIONS", "/process.Process/Start", nil, "Origin", "https://example.com",
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,x-access-token")
	h := w.Header()
	if w.Code != 204 || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Access-Control-Max-Age") != "7200" ||
		h.Get("Access-Control-Allow-Headers") != "authorization,x-access-token" ||
		h.Get("Access-Control-Allow-Methods") != "HEAD, GET, POST, PUT, PATCH, DELETE" {
		t.Errorf("preflight: got %d %v, want all methods allowed", w.Code, h)
	}
	w = b.call(t, "GET", "/health", nil, "Origin", "https://example.com")
	if w.Header().Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("headers of a plain request: got %v, want any origin allowed", w.Header())
	}
}

func TestMetrics(t *testing.T) {
	b := newTestGuest(t, nil)
	b.upload(t, "path=f", strings.Repeat("x", 1<<20))
	w := b.call(t, "GET", "/metrics", nil, "X-Access-Token", access)
	var got map[string]float64
	dec := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	if err := dec.Decode(&got); err != nil || w.Code != 200 {
		t.Fatalf("metrics: got %d %s, %v, want 200 and a sample", w.Code, w.Body, err)
	}
	if got["cpu_count"] != 2 || got["mem_total"] != 1<<30 || got["mem_total_mib"] != 1024 || got["disk_total"] != 4<<30 {
		t.Errorf("totals are not the limits: %v", got)
	}
	if got["mem_used"] <= 0 || got["disk_used"] <= 0 || got["ts"] <= 0 {
		t.Errorf("usage: got %v, want more than 0", got)
	}
	for _, key := range []string{"cpu_used_pct", "mem_cache", "mem_used_mib"} {
		if _, ok := got[key]; !ok {
			t.Errorf("the sample lacks %s", key)
		}
	}
}
