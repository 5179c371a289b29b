package v1

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/store"
	"github.com/crannog/crannog/internal/sandbox"
)

// fakePackages is a cache of one package. It records the requested changes with their callers.
type fakePackages struct{ changes []string }

func (*fakePackages) List() ([]store.Listed, error) {
	e := store.Entry{Key: "https://r.test/a", Ecosystem: packages.NPM, Name: "a", Version: "1.0.0", SHA256: strings.Repeat("a", 64), Size: 7, Fetched: time.Unix(5, 0).UTC()}
	return []store.Listed{{Entry: e, Used: time.Unix(6, 0).UTC()}}, nil
}

func (p *fakePackages) Prune(_ context.Context, caller sandbox.Principal, maxBytes int64) (store.Pruned, error) {
	p.changes = append(p.changes, fmt.Sprintf("%s prune %d", caller.Actor(), maxBytes))
	return store.Pruned{Entries: 2, Bytes: 3}, nil
}

func (p *fakePackages) Verify(_ context.Context, caller sandbox.Principal) (store.Verified, error) {
	p.changes = append(p.changes, caller.Actor()+" verify")
	return store.Verified{Contents: 1, Bytes: 7, Damaged: []string{"d"}}, nil
}

func (*fakePackages) Budget() int64 { return 100 }

// TestPackageCacheIsForLocalCallers checks that keys cannot see what other users' sandboxes install
// (P61), and that a session of the web console can, whose scope the console checks.
func TestPackageCacheIsForLocalCallers(t *testing.T) {
	r, p := newRig(t), &fakePackages{}
	r.deps.PackageCache = p
	r.with(r.deps)
	for caller, want := range map[*sandbox.Principal]int{
		{KeyID: "k1"}: 403, {Local: true, UID: 7}: 200, {Local: true, Session: "c1", Tokenless: true}: 200,
	} {
		r.caller = *caller
		var list api.PackageCache
		code, problem := r.call("GET", "/v1/package-cache", "", &list)
		if code != want || code == 200 && (len(list.Packages) != 1 || list.Packages[0].URL != "https://r.test/a" || list.Budget != 100) {
			t.Errorf("%s lists: got %d %+v", caller.Actor(), code, problem)
		}
		if code != 200 && problem.Code != "local_only" {
			t.Errorf("%s lists: got %+v, want local_only", caller.Actor(), problem)
		}
		var pruned api.PrunedPackages
		if code, problem := r.call("POST", "/v1/package-cache/prune", `{"keep_bytes":9}`, &pruned); code != want || code == 200 && (pruned != api.PrunedPackages{Removed: 2, FreedBytes: 3}) {
			t.Errorf("%s prunes: got %d %+v", caller.Actor(), code, problem)
		}
		var verified api.VerifiedPackages
		if code, problem := r.call("POST", "/v1/package-cache/verify", "", &verified); code != want || code == 200 && (verified.Verified != 1 || !slices.Equal(verified.Damaged, []string{"d"})) {
			t.Errorf("%s verifies: got %d %+v", caller.Actor(), code, problem)
		}
	}
	slices.Sort(p.changes)
	if want := []string{"console:c1 prune 9", "console:c1 verify", "local:7 prune 9", "local:7 verify"}; !slices.Equal(p.changes, want) {
		t.Errorf("got %q, want %q", p.changes, want)
	}
}
