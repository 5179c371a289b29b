package enginebench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	maxRounds = 1000
	// firstLimit is the memory limit of the first sandbox of each engine, and limitStep is how much
	// more each further one gets, so that no sandbox is warm for it.
	firstLimit = 1 << 30
	limitStep  = 1 << 20
)

// run is one run of the benchmark.
type run struct {
	lab      Lab
	options  Options
	progress func(string)
	places   []*place
}

// result collects the values of one measurement in one place.
type result struct {
	values []float64
	note   string
	failed error
}

// measure makes one measurement in every place, in turns: each round begins with another place, so
// that a load of the machine that lasts for a moment affects all of them. One round before the
// first fills caches and is not counted. A place in which the measurement fails has no value but
// the reason, and the others are measured all the same.
func (r *run) measure(ctx context.Context, m measurement) (_ Row, err error) {
	row := Row{ID: m.id, Title: m.title, Unit: m.unit}
	results := map[*place]*result{}
	for _, p := range r.places {
		results[p] = &result{failed: r.prepare(ctx, m, p)}
		defer func() { err = errors.Join(err, p.close(ctx)) }()
	}
	for round := m.first(); round < m.rounds(r.options.Rounds); round++ {
		for i := range r.places {
			p := r.places[(i+max(round, 0))%len(r.places)]
			if err := ctx.Err(); err != nil {
				return row, err
			}
			found := results[p]
			if found.failed != nil {
				continue
			}
			r.progress(fmt.Sprintf("%s: %s, round %d of %d", m.title, p.name, round+1, m.rounds(r.options.Rounds)))
			value, note, err := m.do(ctx, r, p)
			switch {
			case err != nil:
				found.failed = err
			case round >= 0:
				found.values, found.note = append(found.values, value), note
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return row, err
	}
	for _, p := range r.places {
		row.Values = append(row.Values, results[p].value(p.name))
	}
	return row, nil
}

// prepare makes a place ready for a measurement.
func (r *run) prepare(ctx context.Context, m measurement, p *place) error {
	if p.isHost() && m.sandboxOnly {
		return errAbsent("there is no sandbox")
	}
	if m.ownSandboxes {
		return nil
	}
	r.progress(fmt.Sprintf("%s: a sandbox of %s", m.title, p.name))
	if err := p.open(ctx, r.lab, r.want(p, m)); err != nil {
		return err
	}
	for _, program := range m.programs {
		switch ok, err := p.has(ctx, program); {
		case err != nil:
			return err
		case !ok:
			return errAbsent(program + " is not installed")
		}
	}
	if m.setup == nil {
		return nil
	}
	return m.setup(ctx, r, p)
}

// want describes the next sandbox of a place. No earlier sandbox had its memory limit.
func (r *run) want(p *place, m measurement) Want {
	if p.limit += limitStep; p.limit < firstLimit {
		p.limit = firstLimit
	}
	w := Want{Engine: p.name, Boundary: p.boundary, Image: r.options.Image, MemoryBytes: p.limit}
	if m.reaches != nil {
		m.reaches(r.options, &w)
	}
	return w
}

// value returns the result as the report shows it.
func (f *result) value(on string) Value {
	if f.failed != nil {
		return Value{On: on, Reason: f.failed.Error()}
	}
	median := Percentile(f.values, 0.50)
	if median <= 0 { // for memory, if other programs released more than the sandboxes used
		return Value{On: on, Reason: cmp.Or(f.note, "the median is not positive")}
	}
	return Value{On: on, N: len(f.values), P50: median, P95: Percentile(f.values, 0.95), Note: f.note}
}

// timed returns the milliseconds that a function takes.
func timed(do func() error) (float64, error) {
	began := time.Now()
	err := do()
	return float64(time.Since(began)) / float64(time.Millisecond), err
}
