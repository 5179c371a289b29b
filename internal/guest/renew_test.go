package guest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/identity"
)

// another is the configuration of the sandbox that b's becomes.
func another() guest.Config {
	return guest.Config{
		SandboxID: "ianother", TemplateID: "template2", AccessToken: "access2", ControlToken: "control2",
		DefaultUser: "user", Env: map[string]string{"HERS": "yes"}, DefaultDir: "~/sub",
		MemoryBytes: 2 << 30, MilliCPU: 4000, DiskBytes: 8 << 30,
		Files: []guest.File{{Path: "/etc/large", Data: make([]byte, 1<<10)}},
	}
}

func (b *testGuest) json(t *testing.T, path, token string, into any) int {
	t.Helper()
	w := b.call(t, "GET", path, nil, "X-Access-Token", token)
	if w.Code == 200 {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatal(err)
		}
	}
	return w.Code
}

func TestRenew(t *testing.T) {
	b := newTestGuest(t, nil)
	if err := b.Renew(another()); err != nil {
		t.Fatal(err)
	}
	var env map[string]string
	if code := b.json(t, "/envs", access, &env); code != 401 {
		t.Errorf("the old token: %d", code)
	}
	if b.json(t, "/envs", "access2", &env); env["HERS"] != "yes" || env["MINE"] != "" || env["E2B_SANDBOX_ID"] != "ianother" || env["E2B_TEMPLATE_ID"] != "template2" {
		t.Errorf("variables: %v", env)
	}
	for token, want := range map[string]int{control: 404, "control2": 204} {
		if w := b.call(t, "GET", guest.PathReady, nil, guest.ControlHeader, token); w.Code != want {
			t.Errorf("ready with %s: %d", token, w.Code)
		}
	}
	var sample map[string]float64
	if b.json(t, "/metrics", "access2", &sample); sample["cpu_count"] != 4 || sample["mem_total"] != 2<<30 || sample["disk_total"] != 8<<30 {
		t.Errorf("limits: %v", sample)
	}
	// The directory of requests that name none.
	w := b.call(t, "POST", "/filesystem.Filesystem/Stat", strings.NewReader(`{"path":""}`), "Content-Type", "application/json", "X-Access-Token", "access2")
	if w.Code != 404 || !strings.Contains(w.Body.String(), "/sub") {
		t.Errorf("the default directory: %d %s", w.Code, w.Body)
	}
	if b.call(t, "POST", "/files?path=f", strings.NewReader("x"), "X-Access-Token", access, "Content-Type", octets).Code != 401 {
		t.Error("files take the old token")
	}
}

// An incomplete configuration changes nothing.
func TestRenewRefuses(t *testing.T) {
	b := newTestGuest(t, nil)
	for name, change := range map[string]func(*guest.Config){
		"access":  func(c *guest.Config) { c.AccessToken = "" },
		"control": func(c *guest.Config) { c.ControlToken = "" },
		"user":    func(c *guest.Config) { c.DefaultUser = "no-such-user" },
	} {
		bad := another()
		change(&bad)
		if err := b.Renew(bad); err == nil {
			t.Errorf("a guest without a good %s was made", name)
		}
	}
	if code := b.json(t, "/envs", access, &map[string]string{}); code != 200 {
		t.Errorf("the token: %d", code)
	}
}

func TestClaim(t *testing.T) {
	var b *testGuest
	wrong := errors.New("the policy does not hold inside: something")
	var fail error
	b = newTestGuest(t, func(_ *guest.Config, o *guest.Options) {
		o.Claim = func(_ context.Context, cfg guest.Config) error {
			if fail != nil {
				return fail
			}
			return b.Renew(cfg)
		}
	})
	claim := func(cfg guest.Config, token string) (int, string) {
		t.Helper()
		body, err := json.Marshal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		w := b.call(t, "POST", guest.PathClaim, strings.NewReader(string(body)), guest.ControlHeader, token)
		return w.Code, w.Body.String()
	}
	cfg := another()
	for name, c := range map[string]struct {
		change func(*guest.Config)
		token  string
		want   int
	}{
		"no token":         {func(*guest.Config) {}, "", 404},
		"the access token": {func(*guest.Config) {}, access, 404},
		"no renewal":       {func(c *guest.Config) { c.Renew = "" }, control, 400},
		"a restore":        {func(c *guest.Config) { c.Renew = guest.Copied }, control, 400},
		"an archive":       {func(c *guest.Config) { c.Archive = true }, control, 400},
	} {
		other := cfg
		other.Renew = guest.Claimed
		c.change(&other)
		if code, body := claim(other, c.token); code != c.want {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if w := b.call(t, "POST", guest.PathClaim, strings.NewReader(`{"unknown":1}`), guest.ControlHeader, control); w.Code != 400 {
		t.Errorf("nonsense: %d", w.Code)
	}
	cfg.Renew, fail = guest.Claimed, wrong
	if code, body := claim(cfg, control); code != 409 || !strings.Contains(body, wrong.Error()) {
		t.Errorf("with a check that fails: %d %s", code, body)
	}
	if code := b.json(t, "/envs", "access2", &map[string]string{}); code != 401 {
		t.Errorf("the token of a claim that failed: %d", code)
	}
	fail = nil
	if code, body := claim(cfg, control); code != 204 {
		t.Errorf("%d %s", code, body)
	}
	if code := b.json(t, "/envs", "access2", &map[string]string{}); code != 200 {
		t.Errorf("the token of the claim: %d", code)
	}
	if code, _ := claim(cfg, control); code != 404 {
		t.Errorf("a second claim by the old token: %d", code)
	}
}

// A sandbox that was saved for long notices on its return that its end has passed, a moment before
// it gets its new one.
func TestEndWaitsForANewEndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		cfg := another()
		cfg.EndAt = time.Now().Add(-time.Hour)
		g, err := guest.New(cfg, guest.Options{Users: identity.Fixed{{Name: "user"}}, End: func() { ended.Store(true) }})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cfg.EndAt = time.Now().Add(time.Hour)
		if err := g.Renew(cfg); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if ended.Load() {
			t.Fatal("it ended at the old time")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !ended.Load() {
			t.Error("it did not end at the new time")
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestDecode(t *testing.T) {
	good := `{"sandbox_id":"i","access_token":"a","control_token":"c","default_user":"u"}`
	if cfg, rest, err := guest.Decode(strings.NewReader(good + "\n")); err != nil || cfg.SandboxID != "i" || rest != nil {
		t.Errorf("%+v %v", cfg, err)
	}
	// The stream has no end, and only the line is read of it.
	endless, w := io.Pipe()
	go func() { _, _ = io.WriteString(w, good+"\n") }()
	if cfg, _, err := guest.Decode(endless); err != nil || cfg.SandboxID != "i" {
		t.Errorf("%+v %v", cfg, err)
	}
	for _, bad := range []string{"", "{", good[:20], good + good, `{"unknown":1}`, "[]", strings.Repeat(" ", 4<<20) + good, `{"archive":true}`, `{"archive":true}x`} {
		if _, _, err := guest.Decode(strings.NewReader(bad)); err == nil {
			t.Errorf("%.40q was accepted", bad)
		}
	}
	// A guest of a later version is recognised by this text.
	if _, _, err := guest.Decode(strings.NewReader(`{"unknown":1}`)); !strings.HasPrefix(err.Error(), guest.Unknown) {
		t.Error(err)
	}
	_, rest, err := guest.Decode(strings.NewReader(`{"archive":true}` + "\n" + strings.Repeat("x", 5<<20)))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, rest); n != 5<<20 || err != nil {
		t.Errorf("%d bytes are behind it: %v", n, err)
	}
}
