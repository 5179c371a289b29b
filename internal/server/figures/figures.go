// Package figures owns the metrics of a server: what it counts itself, and what it asks of its parts
// when somebody reads the metrics.
package figures

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/admission"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
	"github.com/crannog/crannog/internal/telemetry/metrics"
)

// Sources are the parts of a server that have figures. All but Version and Started may be nil.
type Sources struct {
	Version string
	Started time.Time
	Queue   func() admission.Status
	// States counts sandboxes by state.
	States func(context.Context) (map[sandbox.State]int, error)
	// Approvals counts the approval requests that wait for a person.
	Approvals func(context.Context) (int, error)
	Pool      func() (warmpool.Status, bool)
	Audit     func() audit.Status
	// Disk returns the free and the total bytes of the state directory's disk, and how much must
	// stay free.
	Disk     func() (free, total, floor int64, err error)
	Packages Packages
}

// Figures are the metrics of a server. It is safe for concurrent use.
type Figures struct {
	sources Sources
	// Requests, Actions, Starts and Commands are times. Decisions counts decisions of the egress
	// gateway.
	Requests, Actions, Starts, Commands, Decisions *metrics.Vector
}

// New returns metrics that are zero. Bind adds their sources.
func New() *Figures {
	return &Figures{
		Requests:  metrics.NewHistogram("crannog_request_seconds", "Requests to the APIs, by operation and code of the error.", "surface", "operation", "outcome"),
		Actions:   metrics.NewHistogram("crannog_action_seconds", "Actions on sandboxes and other objects, as the audit log names them, by outcome.", "action", "outcome"),
		Starts:    metrics.NewHistogram("crannog_sandbox_start_seconds", "Starts of sandboxes that succeeded, by engine and by where the instance came from.", "engine", "source"),
		Commands:  metrics.NewHistogram("crannog_command_seconds", "Commands from start to end, by the way in which they were started, and outcome.", "how", "outcome"),
		Decisions: metrics.NewCounter("crannog_egress_decisions_total", "Decisions of the egress gateway, by kind of flow, effect and kind of rule.", "flow", "effect", "rule"),
	}
}

// Bind sets the sources. It is called once, before Families.
func (f *Figures) Bind(s Sources) { f.sources = s }

// Families returns all figures.
func (f *Figures) Families(ctx context.Context) ([]metrics.Family, error) {
	s := f.sources
	out := []metrics.Family{
		metrics.One("crannog_build_info", metrics.Gauge, "Always 1; the label has the version.", 1, metrics.Label{Name: "version", Value: s.Version}),
		metrics.One("crannog_start_time_seconds", metrics.Gauge, "Time at which the server started, in seconds since 1970.", float64(s.Started.UnixNano())/1e9),
		metrics.One("crannog_goroutines", metrics.Gauge, "Goroutines of the server.", float64(runtime.NumGoroutine())),
	}
	for _, v := range []*metrics.Vector{f.Requests, f.Actions, f.Starts, f.Commands, f.Decisions} {
		out = append(out, v.Family())
	}
	if s.Queue != nil {
		out = append(out, queue(s.Queue())...)
	}
	for _, part := range []func(context.Context) ([]metrics.Family, error){s.states, s.approvals, s.disk, s.packages} {
		families, err := part(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, families...)
	}
	if s.Pool != nil {
		status, _ := s.Pool() // without a pool all are zero, so that a dashboard finds its metrics
		out = append(out, pool(status)...)
	}
	if s.Audit != nil {
		out = append(out, auditLog(s.Audit())...)
	}
	return out, nil
}

func queue(q admission.Status) []metrics.Family {
	gauge, counter := metrics.Gauge, metrics.Counter
	return []metrics.Family{
		metrics.One("crannog_starts_at_once", gauge, "Sandboxes that may start at once now.", float64(q.AtOnce)),
		metrics.One("crannog_starts_running", gauge, "Sandboxes that are being started for callers.", float64(q.Starting)),
		metrics.One("crannog_starts_background", gauge, "Sandboxes that are being made ready for the warm pool.", float64(q.Background)),
		metrics.One("crannog_starts_waiting", gauge, "Requests that wait for their sandbox to be started.", float64(q.Waiting)),
		metrics.One("crannog_start_seconds", gauge, "Average time of one start.", q.ServiceTime.Seconds()),
		metrics.One("crannog_start_wait_seconds", gauge, "Expected wait of a new request.", q.Wait.Seconds()),
		metrics.One("crannog_starts_admitted_total", counter, "Requests admitted.", float64(q.Totals.Admitted)),
		metrics.One("crannog_starts_completed_total", counter, "Starts that succeeded.", float64(q.Totals.Completed)),
		metrics.One("crannog_starts_refused_total", counter, "Requests refused because too many waited.", float64(q.Totals.Refused)),
		metrics.One("crannog_starts_left_total", counter, "Requests whose caller left before their turn.", float64(q.Totals.Left)),
	}
}

// states includes states without a sandbox, so that a graph falls to zero instead of ending.
func (s Sources) states(ctx context.Context) ([]metrics.Family, error) {
	if s.States == nil {
		return nil, nil
	}
	counts, err := s.States(ctx)
	if err != nil {
		return nil, err
	}
	for _, state := range sandbox.States() {
		counts[state] += 0
	}
	f := metrics.Family{Name: "crannog_sandboxes", Kind: metrics.Gauge, Help: "Sandboxes by state."}
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		f.Samples = append(f.Samples, metrics.Sample{Labels: metrics.Labels("state", string(state)), Value: float64(counts[state])})
	}
	return []metrics.Family{f}, nil
}

func (s Sources) approvals(ctx context.Context) ([]metrics.Family, error) {
	if s.Approvals == nil {
		return nil, nil
	}
	n, err := s.Approvals(ctx)
	return []metrics.Family{metrics.One("crannog_approvals_waiting", metrics.Gauge, "Approval requests that wait for a person.", float64(n))}, err
}

func (s Sources) disk(context.Context) ([]metrics.Family, error) {
	if s.Disk == nil {
		return nil, nil
	}
	free, total, floor, err := s.Disk()
	return []metrics.Family{
		metrics.One("crannog_disk_free_bytes", metrics.Gauge, "Free bytes on the disk of the state directory.", float64(free)),
		metrics.One("crannog_disk_bytes", metrics.Gauge, "Size of the disk of the state directory.", float64(total)),
		metrics.One("crannog_disk_floor_bytes", metrics.Gauge, "Bytes that must stay free for new sandboxes to be admitted.", float64(floor)),
	}, err
}

func pool(p warmpool.Status) []metrics.Family {
	waiting := metrics.Family{Name: "crannog_pool_sandboxes", Kind: metrics.Gauge, Help: "Warm sandboxes that wait for a caller, by kind."}
	wanted := metrics.Family{Name: "crannog_pool_wanted", Kind: metrics.Gauge, Help: "Warm sandboxes that the pool wants to have, by kind."}
	acquired := metrics.Family{Name: "crannog_pool_acquired_total", Kind: metrics.Counter, Help: "Warm sandboxes handed to callers, by kind."}
	missed := metrics.Family{Name: "crannog_pool_missed_total", Kind: metrics.Counter, Help: "Requests for which no warm sandbox was ready, by kind."}
	for _, c := range poolKinds(p.Kinds) {
		labels := metrics.Labels("kind", c.Name)
		waiting.Samples = append(waiting.Samples, metrics.Sample{Labels: labels, Value: float64(c.Waiting)})
		wanted.Samples = append(wanted.Samples, metrics.Sample{Labels: labels, Value: float64(c.Wanted)})
		acquired.Samples = append(acquired.Samples, metrics.Sample{Labels: labels, Value: float64(c.Claimed)})
		missed.Samples = append(missed.Samples, metrics.Sample{Labels: labels, Value: float64(c.Missed)})
	}
	return []metrics.Family{
		waiting, wanted, acquired, missed,
		metrics.One("crannog_pool_bytes", metrics.Gauge, "Memory that warm sandboxes are assumed to use.", float64(p.Used)),
		metrics.One("crannog_pool_budget_bytes", metrics.Gauge, "Memory that warm sandboxes may use.", float64(p.Budget)),
	}
}

// poolKinds adds up kinds with the same name: two series with the same labels would make Prometheus
// reject everything. Kinds differ in more than their name shows.
func poolKinds(kinds []warmpool.KindStatus) []warmpool.KindStatus {
	byName := map[string]warmpool.KindStatus{}
	for _, k := range kinds {
		sum := byName[k.Name]
		sum.Name = k.Name
		sum.Waiting += k.Waiting
		sum.Wanted += k.Wanted
		sum.Claimed += k.Claimed
		sum.Missed += k.Missed
		byName[k.Name] = sum
	}
	out := make([]warmpool.KindStatus, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out
}

func auditLog(s audit.Status) []metrics.Family {
	failing := 0.0
	if s.Failing != nil {
		failing = 1
	}
	return []metrics.Family{
		metrics.One("crannog_audit_queued_entries", metrics.Gauge, "Audit entries that wait for the disk.", float64(s.Queued)),
		metrics.One("crannog_audit_failing", metrics.Gauge, "1 if the last write of the audit log failed.", failing),
		metrics.One("crannog_audit_sink_failures_total", metrics.Counter, "Failed deliveries of signed tree heads.", float64(s.SinkFailures)),
		metrics.One("crannog_audit_sinks_behind", metrics.Gauge, "Destinations without the newest signed tree head.", float64(s.SinksBehind)),
	}
}
