package v1

import (
	"fmt"
	"io"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/figures"
	"github.com/crannog/crannog/internal/packages/store"
)

// PackageFigures has the figures of the package cache and its gate.
type PackageFigures interface {
	// Answers returns what sandboxes were answered.
	Answers() figures.Totals
	Usage() (store.Usage, error)
}

// writePackageMetrics writes the figures in the Prometheus text format. The labels have values from
// fixed lists only: a name that a sandbox chose would be a new time series each.
func writePackageMetrics(w io.Writer, answers figures.Totals, u store.Usage) {
	head(w, "crannog_package_answers_total", "counter", "Requests for packages that the cache answered or refused.")
	for _, e := range packages.Ecosystems() {
		for _, verdict := range figures.Verdicts() {
			for _, cached := range []bool{false, true} {
				if cached && verdict == packages.Refused {
					continue
				}
				n := answers.Answers[figures.Answer{Ecosystem: packages.Ecosystem(e), Verdict: verdict, Cached: cached}]
				fmt.Fprintf(w, "crannog_package_answers_total{ecosystem=%q,verdict=%q,cached=\"%t\"} %d\n", e, verdict, cached, n)
			}
		}
	}
	for _, m := range []struct {
		name, kind, help string
		of               func(e packages.Ecosystem) int64
	}{
		{"crannog_package_fetched_bytes_total", "counter", "Bytes received from registries.", func(e packages.Ecosystem) int64 { return answers.Bytes[e].Fetched }},
		{"crannog_package_served_bytes_total", "counter", "Bytes of packages sent to sandboxes.", func(e packages.Ecosystem) int64 { return answers.Bytes[e].Served }},
		{"crannog_package_verification_failures_total", "counter", "Packages refused because they could not be verified.", func(e packages.Ecosystem) int64 { return answers.Unverifiable[e] }},
		{"crannog_package_cache_bytes", "gauge", "Disk space of the cached packages.", func(e packages.Ecosystem) int64 { return u.Stored[e].Bytes }},
		{"crannog_package_cache_entries", "gauge", "Cached files and documents.", func(e packages.Ecosystem) int64 { return int64(u.Stored[e].Entries) }},
	} {
		head(w, m.name, m.kind, m.help)
		for _, e := range packages.Ecosystems() {
			fmt.Fprintf(w, "%s{ecosystem=%q} %d\n", m.name, e, m.of(packages.Ecosystem(e)))
		}
	}
	for _, m := range []struct {
		name, kind, help string
		value            int64
	}{
		{"crannog_package_cache_budget_bytes", "gauge", "Disk space that the cache may take.", u.Budget},
		{"crannog_package_cache_evicted_entries_total", "counter", "Entries removed because of the budget.", int64(u.Evicted.Entries)},
		{"crannog_package_cache_evicted_bytes_total", "counter", "Bytes removed because of the budget.", u.Evicted.Bytes},
		{"crannog_package_cache_damaged_total", "counter", "Damaged contents that a verification of the cache removed.", int64(u.Damaged)},
	} {
		head(w, m.name, m.kind, m.help)
		fmt.Fprintf(w, "%s %d\n", m.name, m.value)
	}
}

// head writes the description of a metric.
func head(w io.Writer, name, kind, help string) {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}
