package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// sampleEvery and keepSamples give an hour of samples per sandbox, about 100 KiB.
const (
	sampleEvery = 5 * time.Second
	keepSamples = 720
	// sampleTimeout keeps one hanging sandbox from delaying the samples of all.
	sampleTimeout = time.Second
)

// ring keeps the latest samples of a sandbox.
type ring struct {
	metrics []sandbox.Metric
	next    int
	last    engine.Usage // the latest, for the rate of CPU use
}

// add turns a reading into a sample.
func (r *ring) add(u engine.Usage, l sandbox.Limits) sandbox.Metric {
	m := sandbox.Metric{
		At: u.At, CPUCount: float64(l.MilliCPU) / 1000,
		MemUsed: u.MemoryBytes, MemTotal: l.MemoryBytes, MemCache: u.MemoryCache,
		DiskUsed: u.DiskBytes, DiskTotal: l.DiskBytes, PIDs: u.PIDs,
	}
	if wall := u.At.Sub(r.last.At); !r.last.At.IsZero() && wall > 0 {
		m.CPUPercent = 100 * max(0, float64(u.CPUTime-r.last.CPUTime)/float64(wall))
	}
	r.last = u
	if len(r.metrics) < keepSamples {
		r.metrics = append(r.metrics, m)
		return m
	}
	r.metrics[r.next] = m
	r.next = (r.next + 1) % keepSamples
	return m
}

// between returns samples in order of time; a zero bound is no bound.
func (r *ring) between(from, to time.Time) []sandbox.Metric {
	out := make([]sandbox.Metric, 0, len(r.metrics))
	for i := range r.metrics {
		m := r.metrics[(r.next+i)%len(r.metrics)]
		if !m.At.Before(from) && (to.IsZero() || !m.At.After(to)) {
			out = append(out, m)
		}
	}
	return out
}

// measureAll reads the usage of all sandboxes at intervals.
func (s *Service) measureAll() {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.work.ctx.Done():
			return
		case <-ticker.C:
		}
		for _, b := range s.live.list() {
			sb, _ := s.live.get(b.id)
			meter := s.engines.meter(sb.Engine)
			if meter == nil {
				continue
			}
			if err := s.sample(s.work.ctx, meter, b); err != nil && fault.KindOf(err) != fault.NotFound && s.work.ctx.Err() == nil {
				s.log.Warn("sandbox not measured", "sandbox", b.id, "err", err)
			}
		}
	}
}

func (s *Service) sample(ctx context.Context, meter engine.Meter, b *liveSandbox) error {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	usage, err := meter.Usage(ctx, b.id)
	if err != nil {
		return err
	}
	s.live.addSample(b, usage)
	return nil
}

// Metrics returns the samples of a time span, and one taken now. A stopped sandbox has none.
func (s *Service) Metrics(ctx context.Context, caller sandbox.Principal, ref string, from, to time.Time) ([]sandbox.Metric, error) {
	r, err := s.resolve(ctx, caller, ref)
	if err != nil {
		return nil, err
	}
	if err := s.engines.checkServed(r); err != nil {
		return nil, err
	}
	meter := s.engines.meter(r.Engine)
	if meter == nil {
		return nil, unmeasured(r.Engine)
	}
	if r.State != sandbox.Running {
		return []sandbox.Metric{}, nil
	}
	if _, ok := s.Live(r.ID); !ok {
		return []sandbox.Metric{}, nil
	}
	b, _ := s.live.find(r.ID)
	if b == nil {
		return []sandbox.Metric{}, nil
	}
	if err := s.sample(ctx, meter, b); err != nil && fault.KindOf(err) != fault.NotFound {
		return nil, err
	}
	return s.live.samples(b, from, to), nil
}
