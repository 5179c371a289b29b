package figures

import (
	"context"
	"strconv"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/figures"
	"github.com/crannog/crannog/internal/packages/store"
	"github.com/crannog/crannog/internal/telemetry/metrics"
)

// Packages has the figures of the package cache and its gate.
type Packages interface {
	// Answers returns what sandboxes were answered.
	Answers() figures.Totals
	Usage() (store.Usage, error)
}

// packages returns the figures of the package cache. The labels have values from fixed lists only: a
// name that a sandbox chose would be a new time series each.
func (s Sources) packages(context.Context) ([]metrics.Family, error) {
	if s.Packages == nil {
		return nil, nil
	}
	u, err := s.Packages.Usage()
	if err != nil {
		return nil, err
	}
	totals := s.Packages.Answers()
	gauge, counter := metrics.Gauge, metrics.Counter
	out := []metrics.Family{answers(totals)}
	for _, m := range []struct {
		name string
		kind metrics.Kind
		help string
		of   func(e packages.Ecosystem) int64
	}{
		{"crannog_package_fetched_bytes_total", counter, "Bytes received from registries.", func(e packages.Ecosystem) int64 { return totals.Bytes[e].Fetched }},
		{"crannog_package_served_bytes_total", counter, "Bytes of packages sent to sandboxes.", func(e packages.Ecosystem) int64 { return totals.Bytes[e].Served }},
		{"crannog_package_verification_failures_total", counter, "Packages refused because they could not be verified.", func(e packages.Ecosystem) int64 { return totals.Unverifiable[e] }},
		{"crannog_package_cache_bytes", gauge, "Disk space of the cached packages.", func(e packages.Ecosystem) int64 { return u.Stored[e].Bytes }},
		{"crannog_package_cache_entries", gauge, "Cached files and documents.", func(e packages.Ecosystem) int64 { return int64(u.Stored[e].Entries) }},
	} {
		f := metrics.Family{Name: m.name, Kind: m.kind, Help: m.help}
		for _, e := range packages.Ecosystems() {
			f.Samples = append(f.Samples, metrics.Sample{Labels: metrics.Labels("ecosystem", e), Value: float64(m.of(packages.Ecosystem(e)))})
		}
		out = append(out, f)
	}
	return append(out,
		metrics.One("crannog_package_cache_budget_bytes", gauge, "Disk space that the cache may take.", float64(u.Budget)),
		metrics.One("crannog_package_cache_evicted_entries_total", counter, "Entries removed because of the budget.", float64(u.Evicted.Entries)),
		metrics.One("crannog_package_cache_evicted_bytes_total", counter, "Bytes removed because of the budget.", float64(u.Evicted.Bytes)),
		metrics.One("crannog_package_cache_damaged_total", counter, "Damaged contents that a verification of the cache removed.", float64(u.Damaged)),
	), nil
}

func answers(totals figures.Totals) metrics.Family {
	f := metrics.Family{Name: "crannog_package_answers_total", Kind: metrics.Counter, Help: "Requests for packages that the cache answered or refused."}
	for _, e := range packages.Ecosystems() {
		for _, verdict := range figures.Verdicts() {
			for _, cached := range []bool{false, true} {
				if cached && verdict == packages.Refused {
					continue
				}
				n := totals.Answers[figures.Answer{Ecosystem: packages.Ecosystem(e), Verdict: verdict, Cached: cached}]
				f.Samples = append(f.Samples, metrics.Sample{
					Labels: metrics.Labels("ecosystem", e, "verdict", verdict, "cached", strconv.FormatBool(cached)), Value: float64(n),
				})
			}
		}
	}
	return f
}
