package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/store"
)

// withFile returns a message of the gateway process and the file that it sends with it.
func withFile(t *testing.T, message any, name string) (json.RawMessage, []*os.File) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	body, err := json.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	return body, []*os.File{f}
}

// Attack: a process that was taken over sends something else than the package that it names.
func TestKeepRejectsInvalidPackages(t *testing.T) {
	cache, err := store.Open(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.tgz")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("content"))
	good := keepBody{Sandbox: "box1", Entry: store.Entry{
		Key: "https://r.test/a/-/a-1.0.0.tgz", Ecosystem: packages.NPM, Name: "a", Version: "1.0.0", SHA256: hex.EncodeToString(sum[:]), Size: 7, Fetched: time.Now(),
	}}
	keep := func(c *Client, req keepBody, file string) error {
		t.Helper()
		return c.keep(withFile(t, req, file))
	}
	c := &Client{packages: cache, controlled: map[string]bool{"box1": true}}
	foreign, wrongDigest, wrongSize := good, good, good
	foreign.Sandbox = "box2"
	wrongDigest.Entry.SHA256 = hex.EncodeToString(make([]byte, sha256.Size))
	wrongSize.Entry.Size = 8
	for name, err := range map[string]error{
		"another controller's sandbox": keep(c, foreign, path),
		"another digest":               keep(c, wrongDigest, path),
		"another size":                 keep(c, wrongSize, path),
		"a directory":                  keep(c, good, filepath.Dir(path)),
		"a device":                     keep(c, good, "/dev/zero"),
		"no store":                     keep(&Client{controlled: c.controlled}, good, path),
		"no file":                      c.keep([]byte(`{"sandbox":"box1","entry":{}}`), nil),
	} {
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("keep with %s: got %v, want Invalid", name, err)
		}
	}
	if list, err := cache.List(); err != nil || len(list) != 0 {
		t.Errorf("the store has %+v, want nothing: %v", list, err)
	}
	if err := keep(c, good, path); err != nil {
		t.Error(err)
	}
	if list, err := cache.List(); err != nil || len(list) != 1 {
		t.Errorf("the store has %+v, want the package: %v", list, err)
	}
}

// A process of an earlier version does not know package rules, so it must not get a policy that
// needs them.
func TestEarlierProcessGetsNoPackagePolicy(t *testing.T) {
	gated := []policy.Layer{{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Packages: policy.Packages{Cache: []string{"npm"}}}}}
	plain := []policy.Layer{{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Packages: policy.Packages{Publish: "deny"}}}}
	if err := checkSupported(gated, withPackages-1); fault.CodeOf(err) != "causeway_version" {
		t.Errorf("package rules for an earlier process: got %v, want causeway_version", err)
	}
	if err := checkSupported(gated, withPackages); err != nil {
		t.Errorf("package rules for a current process: %v", err)
	}
	more := []policy.Layer{{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Packages: policy.Packages{Deny: []string{"go:a"}}}}}
	if err := checkSupported(more, withEcosystems-1); fault.CodeOf(err) != "causeway_version" {
		t.Errorf("rules for other ecosystems for an earlier process: got %v, want causeway_version", err)
	}
	for _, p := range []policy.Packages{
		{Cache: []string{"oci"}}, {Undated: []string{"oci:a/b"}}, {Registries: []policy.Registry{{Host: "a.test", Ecosystem: "oci"}}},
	} {
		images := []policy.Layer{{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Packages: p}}}
		if err := checkSupported(images, withImages-1); fault.CodeOf(err) != "causeway_version" {
			t.Errorf("%+v for an earlier process: got %v, want causeway_version", p, err)
		}
		if err := checkSupported(images, withImages); err != nil {
			t.Errorf("%+v for a current process: %v", p, err)
		}
	}
	if err := checkSupported(more, withEcosystems); err != nil {
		t.Errorf("rules for other ecosystems for a process that knows them: %v", err)
	}
	for _, p := range []policy.Packages{{Advisories: "high"}, {Accepted: []string{"GHSA-a"}}} {
		advised := []policy.Layer{{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Packages: p}}}
		if err := checkSupported(advised, withAdvisories-1); fault.CodeOf(err) != "causeway_version" {
			t.Errorf("rules about advisories for an earlier process: got %v, want causeway_version", err)
		}
		if err := checkSupported(advised, withAdvisories); err != nil {
			t.Errorf("rules about advisories for a current process: %v", err)
		}
	}
	if err := checkSupported(plain, withPackages-1); err != nil {
		t.Errorf("a policy without package rules for an earlier process: %v", err)
	}
}
