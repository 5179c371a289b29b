// Package enginebench owns the comparison of the engines of one host: the same work is done in
// sandboxes of each engine, in turns, and on the host without a sandbox as the baseline.
package enginebench

import (
	"context"
	"fmt"
	"slices"

	"github.com/crannog/crannog/api"
)

// HostName is the name of the baseline: programs that run on the host without a sandbox.
const HostName = "host"

// Options select what is measured.
type Options struct {
	// Engines are the engines to measure; none means all that the host can run.
	Engines []string
	// Image is the OCI image that sandboxes start from. "" is the host's programs, from which some
	// engines cannot start.
	Image string
	// Only are the IDs of the measurements to make; none means all.
	Only []string
	// Remote is true if the sandboxes are not on this host. What runs on the host, and memory, is
	// then left out.
	Remote bool
	// Rounds is how often each measurement is made on each engine.
	Rounds int
	// URL is the address that the measurement of a network request fetches; "" leaves it out.
	URL string
	// Project is a directory with package.json and package-lock.json whose packages are installed;
	// "" leaves this out.
	Project string
}

// Report is the result of a run.
type Report struct {
	Machine      *Machine `json:"machine,omitempty"`
	Image        string   `json:"image,omitempty"`
	Rounds       int      `json:"rounds"`
	Engines      []Engine `json:"engines"`
	Measurements []Row    `json:"measurements"`
}

// Engine is an engine of the host.
type Engine struct {
	Name     string `json:"name"`
	Boundary string `json:"boundary"`
	Version  string `json:"version,omitempty"`
	Measured bool   `json:"measured"`
	// Reason is why it was not measured.
	Reason string `json:"reason,omitempty"`
	Fix    string `json:"fix,omitempty"`
	// Escapes is the result of the escape suite, or nil if the suite has not run on this engine.
	Escapes *Escapes `json:"escapes,omitempty"`
}

// Row is the result of one measurement.
type Row struct {
	ID     string  `json:"id"`
	Title  string  `json:"title"`
	Unit   string  `json:"unit"`
	Values []Value `json:"values"`
}

// Value is the result of one measurement on one engine or on the host.
type Value struct {
	On string `json:"on"`
	// N is the number of values; 0 means that there is none, for the reason.
	N      int     `json:"n"`
	P50    float64 `json:"p50,omitempty"`
	P95    float64 `json:"p95,omitempty"`
	Reason string  `json:"reason,omitempty"`
	Note   string  `json:"note,omitempty"`
}

// Lab creates the sandboxes that are measured.
type Lab interface {
	// Engines lists the engines of the host, also those that cannot run.
	Engines(ctx context.Context) ([]api.Engine, error)
	// Create creates a sandbox.
	Create(ctx context.Context, want Want) (Sandbox, error)
	// Warm reports whether a repeated request may be answered by a sandbox that already runs.
	Warm() bool
}

// Want is what a sandbox must be.
type Want struct {
	Engine, Boundary, Image string
	// MemoryBytes is the memory limit. A limit that no earlier sandbox had makes sure that none is
	// warm.
	MemoryBytes int64
	// Host is a host that programs may reach; "" is none.
	Host string
	// Packages permits the package registries.
	Packages bool
}

// Sandbox is a running sandbox.
type Sandbox interface {
	// Run runs a command and returns its output. A command that fails is an error.
	Run(ctx context.Context, argv ...string) (string, error)
	// Write writes a file.
	Write(ctx context.Context, path string, content []byte) error
	// Snapshot takes a snapshot and removes it. It returns what was saved.
	Snapshot(ctx context.Context) (saved string, err error)
	// Fork makes a copy and removes it. It returns what was copied.
	Fork(ctx context.Context) (copied string, err error)
	// Remove ends the sandbox.
	Remove(ctx context.Context) error
}

// Run measures the engines of a host. progress is called with a text before each step. When ctx
// ends, Run removes its sandboxes and returns the error of ctx.
func Run(ctx context.Context, lab Lab, o Options, progress func(string)) (Report, error) {
	steps, err := selected(o)
	if err != nil {
		return Report{}, err
	}
	listed, err := lab.Engines(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("list the engines: %w", err)
	}
	engines, err := choose(listed, o)
	if err != nil {
		return Report{}, err
	}
	report := Report{Image: o.Image, Rounds: o.Rounds, Engines: engines}
	if !o.Remote {
		report.Machine = machine()
	}
	run := &run{lab: lab, options: o, progress: progress}
	if !o.Remote {
		run.places = append(run.places, &place{name: HostName})
	}
	sandboxes := false
	for _, e := range engines {
		if e.Measured {
			run.places = append(run.places, &place{name: e.Name, boundary: e.Boundary})
			sandboxes = true
		}
	}
	if !sandboxes {
		return report, ErrNoEngine
	}
	for _, m := range steps {
		row, err := run.measure(ctx, m)
		if err != nil {
			return report, err
		}
		report.Measurements = append(report.Measurements, row)
	}
	return report, nil
}

// selected returns the measurements that the options name.
func selected(o Options) ([]measurement, error) {
	if o.Rounds < 1 || o.Rounds > maxRounds {
		return nil, fmt.Errorf("%w: %d rounds: from 1 to %d are possible", ErrOptions, o.Rounds, maxRounds)
	}
	all := measurements(o)
	if len(o.Only) == 0 {
		return all, nil
	}
	var steps []measurement
	for _, id := range o.Only {
		i := slices.IndexFunc(all, func(m measurement) bool { return m.id == id })
		if i < 0 {
			return nil, fmt.Errorf("%w: there is no measurement %q; there are %v", ErrOptions, id, ids(all))
		}
		steps = append(steps, all[i])
	}
	return steps, nil
}

// IDs returns the IDs of the measurements that the options permit.
func IDs(o Options) []string { return ids(measurements(o)) }

func ids(all []measurement) []string {
	var list []string
	for _, m := range all {
		list = append(list, m.id)
	}
	return list
}
