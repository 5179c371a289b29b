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

// renewedConfig returns the configuration of another sandbox, for Renew.
func renewedConfig() guest.Config {
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

func TestRenewReplacesConfig(t *testing.T) {
	b := newTestGuest(t, nil)
	if err := b.Renew(renewedConfig()); err != nil {
		t.Fatal(err)
	}
	var env map[string]string
	if code := b.json(t, "/envs", access, &env); code != 401 {
		t.Errorf("the old token: got status %d, want 401", code)
	}
	if b.json(t, "/envs", "access2", &env); env["HERS"] != "yes" || env["MINE"] != "" || env["E2B_SANDBOX_ID"] != "ianother" || env["E2B_TEMPLATE_ID"] != "template2" {
		t.Errorf("variables after Renew: got %v, want those of the new configuration", env)
	}
	for token, want := range map[string]int{control: 404, "control2": 204} {
		if w := b.call(t, "GET", guest.PathReady, nil, guest.ControlHeader, token); w.Code != want {
			t.Errorf("ready with the token %s: got status %d, want %d", token, w.Code, want)
		}
	}
	var sample map[string]float64
	if b.json(t, "/metrics", "access2", &sample); sample["cpu_count"] != 4 || sample["mem_total"] != 2<<30 || sample["disk_total"] != 8<<30 {
		t.Errorf("limits after Renew: got %v, want those of the new configuration", sample)
	}
	// The default directory applies to requests that name no directory.
	w := b.call(t, "POST", "/filesystem.Filesystem/Stat", strings.NewReader(`{"path":""}`), "Content-Type", "application/json", "X-Access-Token", "access2")
	if w.Code != 404 || !strings.Contains(w.Body.String(), "/sub") {
		t.Errorf("the default directory: %d %s", w.Code, w.Body)
	}
	if b.call(t, "POST", "/files?path=f", strings.NewReader("x"), "X-Access-Token", access, "Content-Type", octets).Code != 401 {
		t.Error("the file service accepts the old token")
	}
}

// An incomplete configuration changes nothing.
func TestRenewRejectsIncompleteConfig(t *testing.T) {
	b := newTestGuest(t, nil)
	for name, change := range map[string]func(*guest.Config){
		"access":  func(c *guest.Config) { c.AccessToken = "" },
		"control": func(c *guest.Config) { c.ControlToken = "" },
		"user":    func(c *guest.Config) { c.DefaultUser = "no-such-user" },
	} {
		bad := renewedConfig()
		change(&bad)
		if err := b.Renew(bad); err == nil {
			t.Errorf("Renew accepted a configuration without a valid %s", name)
		}
	}
	if code := b.json(t, "/envs", access, &map[string]string{}); code != 200 {
		t.Errorf("the token after rejected renewals: got status %d, want 200", code)
	}
}

func TestClaimRenewsOnce(t *testing.T) {
	var b *testGuest
	failure := errors.New("a check failed: something")
	var claimErr error
	b = newTestGuest(t, func(_ *guest.Config, o *guest.Options) {
		o.Claim = func(_ context.Context, cfg guest.Config) error {
			if claimErr != nil {
				return claimErr
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
	cfg := renewedConfig()
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
		changed := cfg
		changed.Renew = guest.Claimed
		c.change(&changed)
		if code, body := claim(changed, c.token); code != c.want {
			t.Errorf("claim with %s: got %d %s, want %d", name, code, body, c.want)
		}
	}
	if w := b.call(t, "POST", guest.PathClaim, strings.NewReader(`{"unknown":1}`), guest.ControlHeader, control); w.Code != 400 {
		t.Errorf("claim with an unknown field: got status %d, want 400", w.Code)
	}
	cfg.Renew, claimErr = guest.Claimed, failure
	if code, body := claim(cfg, control); code != 409 || !strings.Contains(body, failure.Error()) {
		t.Errorf("claim with a failing check: got %d %s", code, body)
	}
	if code := b.json(t, "/envs", "access2", &map[string]string{}); code != 401 {
		t.Errorf("the token of the failed claim: got status %d, want 401", code)
	}
	claimErr = nil
	if code, body := claim(cfg, control); code != 204 {
		t.Errorf("claim: got %d %s, want 204", code, body)
	}
	if code := b.json(t, "/envs", "access2", &map[string]string{}); code != 200 {
		t.Errorf("the token of the claim: %d", code)
	}
	if code, _ := claim(cfg, control); code != 404 {
		t.Errorf("second claim with the old control token: got status %d, want 404", code)
	}
}

// A sandbox that is resumed after a long pause notices that its old end time has passed, shortly
// before it gets a new end time. It must not end then.
func TestEndWaitsForNewEndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		cfg := renewedConfig()
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
			t.Fatal("the sandbox ended at the old end time")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !ended.Load() {
			t.Error("the sandbox did not end at the new end time")
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestDecode(t *testing.T) {
	good := `{"sandbox_id":"i","access_token":"a","control_token":"c","default_user":"u"}`
	if cfg, rest, err := guest.Decode(strings.NewReader(good + "\n")); err != nil || cfg.SandboxID != "i" || rest != nil {
		t.Errorf("Decode of a line: got %+v, %v, rest %v, want no rest", cfg, err, rest)
	}
	// The stream has no end, and Decode reads only the line.
	endless, w := io.Pipe()
	go func() { _, _ = io.WriteString(w, good+"\n") }()
	if cfg, _, err := guest.Decode(endless); err != nil || cfg.SandboxID != "i" {
		t.Errorf("Decode of an endless stream: got %+v, %v", cfg, err)
	}
	for _, bad := range []string{"", "{", good[:20], good + good, `{"unknown":1}`, "[]", strings.Repeat(" ", 4<<20) + good, `{"archive":true}`, `{"archive":true}x`} {
		if _, _, err := guest.Decode(strings.NewReader(bad)); err == nil {
			t.Errorf("Decode accepted %.40q", bad)
		}
	}
	// Callers recognise a guest of another version by this text.
	if _, _, err := guest.Decode(strings.NewReader(`{"unknown":1}`)); !strings.HasPrefix(err.Error(), guest.Unknown) {
		t.Error(err)
	}
	_, rest, err := guest.Decode(strings.NewReader(`{"archive":true}` + "\n" + strings.Repeat("x", 5<<20)))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, rest); n != 5<<20 || err != nil {
		t.Errorf("archive after the configuration: got %d bytes, %v, want %d", n, err, 5<<20)
	}
}
