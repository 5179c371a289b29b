package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/lockfile"
)

// lockedDocuments returns a policy with a registry of npm on the test's upstream server.
func lockedDocuments(t *testing.T, settings string) []policy.Layer {
	t.Helper()
	d, err := policy.Parse([]byte("policy: v1\nlevel: light\nnetwork: {unlisted: deny, hosts: [{host: api.test, ports: [80], rules: [{do: allow}]}]}\n" +
		"packages: {cache: [npm], registries: [{host: api.test, ecosystem: npm}], " + settings + "}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return []policy.Layer{{Kind: policy.LayerTask, Document: d}}
}

// The set of lockfiles reaches the process at attach. Neither an update of the policy nor another
// controller changes it.
func TestLockfilesStayThoseOfAttach(t *testing.T) {
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	link, s := attachmenttest.ListenProxy(t)
	a := testAttachment(t, dir, "box1")
	a.Kind, a.Link, a.Policy = egress.Proxy, link, lockedDocuments(t, "lockfile_only: true")
	a.Locked = &lockfile.Set{Files: 1, Entries: []lockfile.Entry{{Ecosystem: packages.NPM, Name: "locked", Version: "1.0.0", Digests: []string{
		"sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
	}}}}
	if _, _, err := c.Attach(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	link.Close()
	client := s.Client(t)
	// The upstream server is no registry. So a package that the gate lets through is refused
	// because its document cannot be read.
	check := func(when, name string, isLocked bool) {
		t.Helper()
		r, err := client.Get("http://api.test/" + name)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		denied := r.StatusCode == http.StatusForbidden && strings.Contains(string(body), packages.RuleLockfile)
		if denied == isLocked || isLocked && r.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: the package %s: got %d %s, want it denied: %v", when, name, r.StatusCode, body, !isLocked)
		}
	}
	check("attach", "locked", true)
	check("attach", "other", false)
	if err := c.Update(t.Context(), "box1", lockedDocuments(t, "lockfile_only: true, min_age: 1h"), nil, false); err != nil {
		t.Fatal(err)
	}
	check("update", "locked", true)
	check("update", "other", false)
	c.Close()
	c = mustConnect(t, dir, Options{})
	if missing, err := c.Adopt(t.Context(), "box1"); err != nil || len(missing) > 0 {
		t.Fatalf("Adopt: got %v %v", missing, err)
	}
	check("another controller", "locked", true)
	check("another controller", "other", false)
	// Control: without the setting the other package gets as far as the locked one.
	if err := c.Update(t.Context(), "box1", lockedDocuments(t, "min_age: 1h"), nil, false); err != nil {
		t.Fatal(err)
	}
	check("without the setting", "other", true)
}

// A process of an earlier version does not know lockfiles, so it must not get a policy that needs
// them.
func TestEarlierProcessGetsNoLockfilePolicy(t *testing.T) {
	for _, settings := range []string{"lockfile_only: true", `unlocked: ["npm:a"]`} {
		layers := lockedDocuments(t, settings)
		if err := checkSupported(layers, withLockfiles-1); fault.CodeOf(err) != "causeway_version" {
			t.Errorf("%s for an earlier process: got %v, want causeway_version", settings, err)
		}
		if err := checkSupported(layers, withLockfiles); err != nil {
			t.Errorf("%s for a current process: %v", settings, err)
		}
	}
	if err := checkSupported(lockedDocuments(t, "min_age: 1h"), withLockfiles-1); err != nil {
		t.Errorf("other settings for an earlier process: %v", err)
	}
}

// The largest set fits into a message, and one that does not is an error of the caller.
func TestLargeSetsOfLockfiles(t *testing.T) {
	set := &lockfile.Set{}
	size := func() int {
		_, text, err := set.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
	grow := func(to int) {
		one := lockfile.Entry{Ecosystem: packages.NPM, Name: strings.Repeat("n", 200), Version: "1.0.0", Digests: []string{strings.Repeat("d", 400)}}
		for size() < to {
			for range 200 {
				set.Entries = append(set.Entries, one)
			}
		}
	}
	encoded := func() error {
		body, err := json.Marshal(attachBody{Sandbox: "box1", Locked: set})
		if err != nil {
			t.Fatal(err)
		}
		_, err = encode(&frame{ID: 1, Call: callAttach, Body: body})
		return err
	}
	grow(lockfile.MaxSize)
	if err := encoded(); err != nil {
		t.Errorf("a set of %d bytes: %v", size(), err)
	}
	grow(maxFrame + 1<<20)
	if err := encoded(); fault.KindOf(err) != fault.Exhausted || !strings.Contains(err.Error(), "lockfiles") {
		t.Errorf("a set of %d bytes: got %v, want Exhausted with a reason", size(), err)
	}
}
