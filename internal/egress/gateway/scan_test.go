package gateway

import (
	"bytes"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/clamd"
	"github.com/crannog/crannog/internal/packages/clamd/clamdtest"
	"github.com/crannog/crannog/internal/packages/examine"
	"github.com/crannog/crannog/internal/packages/packagetest"
	"github.com/crannog/crannog/internal/packages/store"
)

// npmRegistry serves packages with one version, 1.0.0, of which one file has a text.
func npmRegistry(t *testing.T, texts map[string]string) *httptest.Server {
	t.Helper()
	files := map[string][]byte{}
	for name, text := range texts {
		content := []byte(packagetest.Tarball(t, "package/index.js", text))
		sum := sha512.Sum512(content)
		file := "/" + name + "/-/" + name + "-1.0.0.tgz"
		files[file] = content
		var err error
		files["/"+name], err = json.Marshal(map[string]any{"name": name, "versions": map[string]any{"1.0.0": map[string]any{"dist": map[string]string{
			"tarball": "http://api.test" + file, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, ok := files[r.URL.Path]; ok {
			_, _ = w.Write(text)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// P76: The confined process has files scanned by a real daemon, which it cannot reach itself.
func TestPackagesAreScannedByTheController(t *testing.T) {
	address := clamdtest.Start(t, "AlertExceedsMax yes\n")
	registry := npmRegistry(t, map[string]string{"good": "text", "bad": "a " + clamdtest.Signature, "late": "text"})
	dir := newState(t, testEnvironment{Upstream: strings.TrimPrefix(registry.URL, "http://"), Addresses: map[string]string{"api.test": "93.184.216.34"}})
	cache, err := store.Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := func(address string) *examine.Examiner {
		s, err := clamd.New(address)
		if err != nil {
			t.Fatal(err)
		}
		return examine.New(cache, s, time.Now)
	}
	c := mustConnect(t, dir, Options{Packages: cache, Examiner: at(address)})
	link, s := attachmenttest.ListenProxy(t)
	a := testAttachment(t, dir, "box1")
	a.Kind, a.Link, a.Policy = egress.Proxy, link, lockedDocuments(t, "scan: clamd")
	if _, _, err := c.Attach(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	link.Close()
	client := s.Client(t)
	check := func(when, name string, status int, code, scan string) {
		t.Helper()
		file := "/" + name + "/-/" + name + "-1.0.0.tgz"
		r, err := client.Get("http://api.test" + file)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if r.StatusCode != status || !strings.Contains(string(body), code) || status != http.StatusOK && bytes.HasPrefix(body, []byte("\x1f\x8b")) {
			t.Errorf("%s, %s: got %d %.300s, want %d %s", when, name, r.StatusCode, body, status, code)
		}
		all := readRecords(t, dir, "box1")
		last := all[len(all)-1]
		if last.Path != file || last.Package == nil || !strings.HasPrefix(last.Package.Scan, scan) {
			t.Errorf("%s, %s: the entry is %s %+v, want the scan %s", when, path.Base(file), last.Path, last.Package, scan)
		}
	}
	for _, when := range []string{"at first", "from the cache"} {
		check(when, "good", http.StatusOK, "", "clean (ClamAV ")
		check(when, "bad", http.StatusForbidden, clamdtest.Name, "found "+clamdtest.Name)
	}
	// Control: without the setting, the file passes.
	if err := c.Update(t.Context(), "box1", lockedDocuments(t, "min_age: 1h, undated: [\"npm:**\"]"), nil, false); err != nil {
		t.Fatal(err)
	}
	check("without the setting", "bad", http.StatusOK, "", "")
	if err := c.Update(t.Context(), "box1", lockedDocuments(t, "scan: clamd"), nil, false); err != nil {
		t.Fatal(err)
	}
	// Without a daemon nothing passes, also not what was clean before.
	c.Close()
	c = mustConnect(t, dir, Options{Packages: cache, Examiner: at("unix:///nonexistent/clamd.ctl")})
	if missing, err := c.Adopt(t.Context(), "box1"); err != nil || len(missing) > 0 {
		t.Fatalf("Adopt: got %v %v", missing, err)
	}
	check("without a daemon", "good", http.StatusServiceUnavailable, "package_scanner", "not scanned")
	check("without a daemon", "late", http.StatusServiceUnavailable, "clamav-daemon", "not scanned")
	c.Close()
	check("without a controller", "good", http.StatusServiceUnavailable, "package_scanner", "not scanned")
}

// Attack: a process that was taken over has something else examined than a package of its sandbox.
func TestExamineRejectsInvalidRequests(t *testing.T) {
	cache, err := store.Open(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	file := path.Join(t.TempDir(), "a.tgz")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := examineBody{Sandbox: "box1", Request: examine.Request{
		Artifact: packages.Artifact{Ecosystem: packages.NPM, Name: "a", Version: "1.0.0"}, Path: "/a/-/a-1.0.0.tgz", Size: 7, Content: true, SHA256: strings.Repeat("0", 64),
	}}
	run := func(c *Client, req examineBody, name string) error {
		t.Helper()
		body, files := withFile(t, req, name)
		_, err := c.examine(t.Context(), body, files)
		return err
	}
	c := &Client{examiner: examine.New(cache, nil, time.Now), controlled: map[string]bool{"box1": true}}
	foreign, size := good, good
	foreign.Sandbox, size.Request.Size = "box2", 8
	for name, err := range map[string]error{
		"another controller's sandbox": run(c, foreign, file),
		"another size":                 run(c, size, file),
		"a directory":                  run(c, good, path.Dir(file)),
		"a device":                     run(c, good, "/dev/zero"),
		"no examiner":                  run(&Client{controlled: c.controlled}, good, file),
	} {
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: got %v, want Invalid", name, err)
		}
	}
	if err := run(c, good, file); err != nil {
		t.Errorf("control: %v", err)
	}
}

// A process of an earlier version does not know scans, so it must not get a policy that needs them.
func TestEarlierProcessGetsNoScanPolicy(t *testing.T) {
	for _, settings := range []string{"scan: clamd", "advisories_max_age: 24h"} {
		layers := lockedDocuments(t, settings)
		if err := checkSupported(layers, withScan-1); fault.CodeOf(err) != "causeway_version" {
			t.Errorf("%s for an earlier process: got %v, want causeway_version", settings, err)
		}
		if err := checkSupported(layers, withScan); err != nil {
			t.Errorf("%s for a current process: %v", settings, err)
		}
	}
}
