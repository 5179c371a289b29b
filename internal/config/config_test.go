package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func testEnv(vars map[string]string) Env {
	return Env{
		Lookup: func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
		UID:    1000, Home: "/home/someone",
	}
}

func TestDefaultIsValid(t *testing.T) {
	if err := Default(testEnv(nil)).Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestDefaultStateDependsOnUser(t *testing.T) {
	env := testEnv(nil)
	if got := Default(env).State; got != "/home/someone/.local/share/crannog" {
		t.Errorf("default state directory of a user: got %s", got)
	}
	env.UID = 0
	if got := Default(env).State; got != "/var/lib/crannog" {
		t.Errorf("default state directory of root: got %s", got)
	}
}

func TestLaterSourcesWin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	write(t, path, "memory = \"256m\"\npids = 40\nlisten = \"127.0.0.1:1\"\n")
	c, err := Load(testEnv(map[string]string{"CRANNOG_CONFIG": path, "CRANNOG_PIDS": "50", "CRANNOG_LISTEN": "127.0.0.1:2"}), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Set("listen", "127.0.0.1:3", "--listen"); err != nil {
		t.Fatal(err)
	}
	if c.Sandbox.MemoryBytes != 256<<20 || c.Sandbox.PIDs != 50 || c.HTTP.Listen != "127.0.0.1:3" {
		t.Errorf("memory, pids and listen address: got %d, %d, %s; want 256 MiB, 50, 127.0.0.1:3", c.Sandbox.MemoryBytes, c.Sandbox.PIDs, c.HTTP.Listen)
	}
	want := map[string]string{"memory": path, "pids": "CRANNOG_PIDS", "listen": "--listen", "disk": "default"}
	for _, v := range c.Values() {
		if w, ok := want[v.Name]; ok && v.Origin != w {
			t.Errorf("origin of %s is %s, want %s", v.Name, v.Origin, w)
		}
	}
}

func TestEveryProblemIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	write(t, path, "memroy = \"1g\"\npids = -3\n[section]\na = 1\n")
	_, err := Load(testEnv(map[string]string{"CRANNOG_DISK": "lots"}), path)
	if err == nil {
		t.Fatal("Load accepts an invalid file")
	}
	for _, want := range []string{"memroy", "pids", "section", "CRANNOG_DISK"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	c := Default(testEnv(nil))
	c.State, c.HTTP.Listen, c.Telemetry.LogLevel, c.Client.URL, c.Sandbox.OutputBytes = "rel", "nowhere", "loud", "ftp://x", 0
	c.Policies.Organisation, c.Policies.Project, c.Capacity.Live, c.Lifetime.Default, c.Lifetime.Retention = "policy.yaml", "./p.yaml", 0, 48*time.Hour, 0
	c.Capacity.Paused, c.Snapshots.Budget, c.Snapshots.Retention = 0, 1, time.Second
	c.HTTP.MaxConnections, c.HTTP.MaxPerAddress, c.HTTP.ReservedDescriptors, c.HTTP.HeaderTimeout, c.HTTP.IdleTimeout = 0, 0, 0, 0, 0
	c.Audit.Age, c.Audit.Bytes = 0, 1<<20
	err = c.Validate()
	for _, want := range []string{"state:", "listen:", "log_level:", "url:", "max_output:", "organisation_policy:", "project_policy:", "max_live:", "max_connections:", "max_connections_per_address:", "reserved_descriptors:", "header_timeout:", "idle_timeout:", "max_paused:", "snapshot_budget:", "snapshot_retention:", "default_timeout:", "retention:", "record_age:", "record_bytes:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func TestNamedFileMustExist(t *testing.T) {
	if _, err := Load(testEnv(nil), "/nowhere/config.toml"); err == nil {
		t.Error("Load succeeds although the named file is missing")
	}
}

func TestListenBeyondLoopbackNeedsInsecure(t *testing.T) {
	for listen, ok := range map[string]bool{
		"127.0.0.1:7070": true, "localhost:7070": true, "[::1]:7070": true, "127.9.9.9:1": true,
		"0.0.0.0:7070": false, ":7070": false, "[::]:7070": false, "10.0.0.1:80": false,
		"example.com:80": false, "[::ffff:10.0.0.1]:80": false,
	} {
		c := Default(testEnv(nil))
		c.HTTP.Listen = listen
		if got := c.Validate() == nil; got != ok {
			t.Errorf("%s: allowed is %v, want %v", listen, got, ok)
		}
		c.HTTP.Insecure = true
		if err := c.Validate(); err != nil {
			t.Errorf("%s with insecure: %v", listen, err)
		}
	}
}

func TestPackageKeyringsAreAbsolutePaths(t *testing.T) {
	for value, want := range map[string]int{"": 0, "/a b/c.gpg": 1, "/a.gpg, /b.asc,": 2, "a.gpg": -1, "/a.gpg,../b.gpg": -1} {
		c := Default(testEnv(map[string]string{}))
		c.HostFiles.Keyrings = value
		err := c.Validate()
		if (err == nil) != (want >= 0) || err == nil && len(c.PackageKeyrings()) != want {
			t.Errorf("%q: got %q (%v), want %d paths", value, c.PackageKeyrings(), err, want)
		}
	}
}

func TestWebhookNeedsTLSAndSecret(t *testing.T) {
	for _, test := range []struct {
		url, secret string
		ok          bool
	}{
		{"", "", true},
		{"https://hooks.example.com/x", "0123456789abcdef", true},
		{"http://127.0.0.1:9000/x", "0123456789abcdef", true},
		{"http://hooks.example.com/x", "0123456789abcdef", false},
		{"https://user:word@hooks.example.com/x", "0123456789abcdef", false},
		{"https://hooks.example.com/x", "", false},
		{"https://hooks.example.com/x", "short", false},
		{"file:///etc/passwd", "0123456789abcdef", false},
		{"hooks.example.com", "0123456789abcdef", false},
	} {
		c := Default(testEnv(nil))
		c.Webhook.URL, c.Webhook.Secret = test.url, Secret(test.secret)
		err := c.Validate()
		if (err == nil) != test.ok {
			t.Errorf("webhook %+v: got error %v", test, err)
		}
		if err != nil && test.secret != "" && strings.Contains(err.Error(), test.secret) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	const plain = "e2b_0123456789"
	s := Secret(plain)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", s, "holder", struct{ K Secret }{s})
	b, err := json.Marshal(map[string]any{"k": s})
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{log.String(), string(b), s.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		shown = append(shown, fmt.Sprintf(verb, s), fmt.Sprintf(verb, struct{ K Secret }{s}), fmt.Sprintf(verb, []Secret{s}))
	}
	for _, text := range shown {
		if strings.Contains(text, plain) || strings.Contains(text, "0123") || strings.Contains(strings.ToLower(text), "6532625f") {
			t.Errorf("the secret is printed: %s", text)
		}
	}
	if s.Reveal() != plain {
		t.Error("Reveal does not return the text")
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{"30s": 30 * time.Second, "90": 90 * time.Second, "1h30m": 90 * time.Minute, "0.5s": 500 * time.Millisecond} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q): got %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "-5s", "soon", "99999999999999999999"} {
		if d, err := ParseDuration(in); err == nil {
			t.Errorf("%q is parsed as %v, want an error", in, d)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"512m", "1.5g", "64KiB", "0", "-1", "1e9", "nan", "inf", "9999999999t", "0x10", "", "b", "1_0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("ParseSize(%q) is negative: %d", s, n)
		}
		if back, err := ParseSize(FormatSize(n)); err != nil || back != n {
			t.Fatalf("%q is %d, shown as %q, read back as %d: %v", s, n, FormatSize(n), back, err)
		}
	})
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A setting changes only its own field, and is printed as it was set. Two settings with the same
// field would silently change each other.
func TestEverySettingHasItsOwnField(t *testing.T) {
	for _, s := range settings {
		c := Default(testEnv(nil))
		before := c.Values()
		changed := slices.ContainsFunc([]string{"true", "77", "77m", "77s", "off", "none", "7.5", "text"}, func(v string) bool {
			return s.set(&c, v) == nil && s.show(&c) != s.show(new(Default(testEnv(nil))))
		})
		if !changed {
			t.Errorf("%s: no value changes it", s.name)
		}
		for i, v := range c.Values() {
			if (v.Value != before[i].Value) != (v.Name == s.name) {
				t.Errorf("after a change of %s, %s is %q, and was %q", s.name, v.Name, v.Value, before[i].Value)
			}
		}
	}
}
