package figures

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/figures"
	"github.com/crannog/crannog/internal/packages/store"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/admission"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
	"github.com/crannog/crannog/internal/telemetry/metrics"
)

type fakePackages struct{}

func (fakePackages) Answers() figures.Totals {
	return figures.Totals{
		Answers: map[figures.Answer]int64{
			{Ecosystem: packages.NPM, Verdict: packages.Passed, Cached: true}: 3, {Ecosystem: packages.Go, Verdict: packages.Refused}: 4,
		},
		Bytes:        map[packages.Ecosystem]figures.Bytes{packages.NPM: {Fetched: 10, Served: 30}},
		Unverifiable: map[packages.Ecosystem]int64{packages.Go: 1},
	}
}

func (fakePackages) Usage() (store.Usage, error) {
	return store.Usage{
		Stored: map[packages.Ecosystem]store.Stored{packages.NPM: {Entries: 2, Bytes: 50}}, Budget: 100, Evicted: store.Pruned{Entries: 6, Bytes: 60}, Damaged: 5,
	}, nil
}

func text(t *testing.T, s Sources) string {
	t.Helper()
	f := New()
	f.Bind(s)
	families, err := f.Families(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := metrics.WriteText(&b, families); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFamilies(t *testing.T) {
	if got := text(t, Sources{}); strings.Contains(got, "crannog_package") {
		t.Errorf("without a cache: got\n%s", got)
	}
	got := text(t, Sources{
		Queue: func() admission.Status {
			return admission.Status{AtOnce: 2, Waiting: 1, Totals: admission.Totals{Refused: 3}}
		},
		States: func(context.Context) (map[sandbox.State]int, error) {
			return map[sandbox.State]int{sandbox.Running: 4}, nil
		},
		Approvals: func(context.Context) (int, error) { return 7, nil },
		Pool: func() (warmpool.Status, bool) {
			return warmpool.Status{Kinds: []warmpool.KindStatus{{Name: "base", Waiting: 1, Missed: 2}, {Name: "base", Waiting: 2, Missed: 5}}}, true
		},
		Disk:     func() (free, total, floor int64, err error) { return 50, 100, 5, nil },
		Packages: fakePackages{},
	})
	for _, line := range []string{
		"# TYPE crannog_starts_waiting gauge", "crannog_starts_waiting 1", "crannog_starts_refused_total 3",
		`crannog_sandboxes{state="running"} 4`, `crannog_sandboxes{state="paused"} 0`, "crannog_approvals_waiting 7",
		`crannog_pool_sandboxes{kind="base"} 3`, `crannog_pool_missed_total{kind="base"} 7`, "crannog_disk_free_bytes 50",
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
		if !strings.Contains("\n"+got, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, got)
		}
	}
	// A second series with the same labels would make Prometheus reject everything.
	names := map[string]bool{}
	for line := range strings.Lines(got) {
		name, _, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(line, "#") && names[name] {
			t.Errorf("%s is there twice", name)
		}
		names[name] = true
	}
}

type brokenPackages struct{ fakePackages }

func (brokenPackages) Usage() (store.Usage, error) {
	return store.Usage{}, errors.New("the disk is broken")
}

func TestUnreadablePartIsAnError(t *testing.T) {
	f := New()
	f.Bind(Sources{Packages: brokenPackages{}})
	if _, err := f.Families(t.Context()); err == nil || err.Error() != "the disk is broken" {
		t.Errorf("got %v", err)
	}
}
