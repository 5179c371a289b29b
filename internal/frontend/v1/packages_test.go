package v1

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/figures"
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

func (*fakePackages) Answers() figures.Totals {
	return figures.Totals{
		Answers: map[figures.Answer]int64{
			{Ecosystem: packages.NPM, Verdict: packages.Passed, Cached: true}: 3, {Ecosystem: packages.Go, Verdict: packages.Refused}: 4,
		},
		Bytes:        map[packages.Ecosystem]figures.Bytes{packages.NPM: {Fetched: 10, Served: 30}},
		Unverifiable: map[packages.Ecosystem]int64{packages.Go: 1},
	}
}

func (*fakePackages) Usage() (store.Usage, error) {
	return store.Usage{
		Stored: map[packages.Ecosystem]store.Stored{packages.NPM: {Entries: 2, Bytes: 50}}, Budget: 100, Evicted: store.Pruned{Entries: 6, Bytes: 60}, Damaged: 5,
	}, nil
}

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

func (r *rig) metrics(t *testing.T) (int, string) {
	t.Helper()
	req := httptest.NewRequest("GET", "/v1/metrics", nil)
	req.Header.Set("X-Api-Key", secret)
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	return w.Code, w.Body.String()
}

func TestMetricsHavePackages(t *testing.T) {
	r := newRig(t).withQueue(fakeQueue{})
	if _, text := r.metrics(t); strings.Contains(text, "crannog_package") {
		t.Errorf("without a cache: got\n%s", text)
	}
	r.deps.PackageFigures = &fakePackages{}
	r.with(r.deps)
	_, text := r.metrics(t)
	for _, line := range []string{
		"crannog_starts_waiting 1",
		"# TYPE crannog_package_answers_total counter",
		`crannog_package_answers_total{ecosystem="npm",verdict="passed",cached="true"} 3`,
		`crannog_package_answers_total{ecosystem="npm",verdict="passed",cached="false"} 0`,
		`crannog_package_answers_total{ecosystem="go",verdict="refused",cached="false"} 4`,
		`crannog_package_fetched_bytes_total{ecosystem="npm"} 10`,
		`crannog_package_served_bytes_total{ecosystem="npm"} 30`,
		`crannog_package_verification_failures_total{ecosystem="go"} 1`,
		`crannog_package_cache_bytes{ecosystem="npm"} 50`,
		`crannog_package_cache_entries{ecosystem="npm"} 2`,
		`crannog_package_cache_entries{ecosystem="maven"} 0`,
		"crannog_package_cache_budget_bytes 100",
		"crannog_package_cache_evicted_entries_total 6",
		"crannog_package_cache_evicted_bytes_total 60",
		"crannog_package_cache_damaged_total 5",
	} {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	// A second series with the same labels would make Prometheus reject everything.
	lines := strings.Split(strings.TrimSpace(text), "\n")
	names := map[string]bool{}
	for _, line := range lines {
		name, _, _ := strings.Cut(line, "} ")
		if !strings.HasPrefix(line, "#") && names[name] {
			t.Errorf("%s is there twice", name)
		}
		names[name] = true
	}
}

// brokenPackages cannot be read.
type brokenPackages struct{ fakePackages }

func (*brokenPackages) Usage() (store.Usage, error) {
	return store.Usage{}, fault.New(fault.Unavailable, "disk", "the disk is broken")
}

func TestMetricsReportAnUnreadableCache(t *testing.T) {
	r := newRig(t).withQueue(fakeQueue{})
	r.deps.PackageFigures = &brokenPackages{}
	r.with(r.deps)
	if code, text := r.metrics(t); code != 503 || !strings.Contains(text, "the disk is broken") {
		t.Errorf("got %d %s, want 503", code, text)
	}
}
