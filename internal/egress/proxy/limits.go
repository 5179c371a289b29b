package proxy

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// Limits limit what one sandbox may cost. A zero field means the default, never unlimited.
type Limits struct {
	Connections int           // at one time; 256
	Requests    int           // at one time; 1024
	Header      int           // bytes of a request's header; 64 KiB
	Body        int64         // bytes of a body that is held during an approval; 64 MiB
	Spool       int64         // bytes of all bodies that are held; 128 MiB
	Uses        int64         // uses of a secret without its own limit; 100,000
	Handshake   time.Duration // for a first byte, a TLS handshake, a header; 30 s
	Idle        time.Duration // of a kept-alive connection; 2 minutes
	Hold        time.Duration // how long an approval request holds a request; 20 s
	Answer      time.Duration // until an upstream's response header; 5 minutes
	Stall       time.Duration // between two pieces of a request's body; 1 minute
}

func (l Limits) orDefault() Limits {
	setDefault(&l.Connections, 256)
	setDefault(&l.Requests, 1024)
	setDefault(&l.Header, 64<<10)
	setDefault(&l.Body, 64<<20)
	setDefault(&l.Spool, 128<<20)
	setDefault(&l.Uses, 100_000)
	// On a host that is busy with other sandboxes, a program takes more than ten seconds for its part
	// of a handshake. What waiting connections cost is bounded by their number.
	setDefault(&l.Handshake, 30*time.Second)
	setDefault(&l.Idle, 2*time.Minute)
	setDefault(&l.Hold, 20*time.Second)
	setDefault(&l.Answer, 5*time.Minute)
	setDefault(&l.Stall, time.Minute)
	return l
}

func setDefault[T ~int | ~int64](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Limits on the entries that a sandbox can cause at no cost.
const (
	queriesPerSecond  = 200
	packetsPerSecond  = 20
	connectsPerSecond = 500
)

// flood limits the events of a kind per second. Events beyond the limit are counted and reported in
// one entry of the next second.
type flood struct {
	rate int

	mu     sync.Mutex
	second int64
	n      int
	over   int
}

// take counts one event and reports whether it is within the limit.
func (f *flood) take(b *Handler, kind egress.Kind) bool {
	now := time.Now()
	f.mu.Lock()
	over := 0
	if s := now.Unix(); s != f.second {
		over, f.second, f.n, f.over = f.over, s, 0, 0
	}
	f.n++
	ok := f.n <= f.rate
	if !ok {
		f.over++
	}
	f.mu.Unlock()
	if over > 0 {
		d := denied(policy.RuleLimit, "more came at once than is inspected")
		_ = b.records.add(egress.Record{Time: now, Kind: kind, Sent: int64(over), Decision: d}, b.current.Load())
	}
	return ok
}

// errBytes is returned when a rule's bytes are used up.
var errBytes = errors.New("the rule's limit of bytes is reached")

// meter counts the traffic of one rule. It outlives a policy, so that an update does not reset it.
type meter struct {
	mu       sync.Mutex
	requests *rate.Limiter // nil means no limit
	allowed  int64
	window   time.Duration

	bytes    atomic.Int64
	maxBytes atomic.Int64 // zero means no limit of this rule
	open     atomic.Int64
	maxOpen  atomic.Int64
}

type meters struct {
	mu    sync.Mutex
	rules map[string]*meter
}

// of returns the meter for a rule's limits, or nil if there are none.
func (m *meters) of(l policy.Limits) *meter {
	if l.Requests == 0 && l.Bytes == 0 && l.Connections == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.rules[l.Rule]
	if t == nil {
		t = &meter{}
		if m.rules == nil {
			m.rules = map[string]*meter{}
		}
		m.rules[l.Rule] = t
	}
	t.set(l)
	return t
}

func (t *meter) set(l policy.Limits) {
	// The limits of a connection have no limits per request. The first request sets those.
	if l.Bytes > 0 {
		t.maxBytes.Store(l.Bytes)
	}
	if l.Connections > 0 {
		t.maxOpen.Store(int64(l.Connections))
	}
	if l.Requests <= 0 || l.Window <= 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.requests != nil && t.allowed == l.Requests && t.window == l.Window {
		return
	}
	every := rate.Limit(float64(l.Requests) / l.Window.Seconds())
	t.allowed, t.window = l.Requests, l.Window
	burst := int(min(l.Requests, 1<<30))
	if t.requests == nil {
		t.requests = rate.NewLimiter(every, burst)
		return
	}
	t.requests.SetLimit(every)
	t.requests.SetBurst(burst)
}

// request counts one request. If the limit is reached, it returns how long to wait.
func (t *meter) request() (wait time.Duration, ok bool) {
	if t == nil {
		return 0, true
	}
	t.mu.Lock()
	limiter := t.requests
	t.mu.Unlock()
	if limiter == nil {
		return 0, true
	}
	r := limiter.Reserve()
	if d := r.Delay(); d > 0 || !r.OK() {
		r.Cancel()
		return d, false
	}
	return 0, true
}

// add counts bytes. It returns errBytes beyond the limit.
func (t *meter) add(n int) error {
	if t == nil {
		return nil
	}
	if limit := t.maxBytes.Load(); t.bytes.Add(int64(n)) > limit && limit > 0 {
		return errBytes
	}
	return nil
}

func (t *meter) full() bool {
	if t == nil {
		return false
	}
	limit := t.maxBytes.Load()
	return limit > 0 && t.bytes.Load() >= limit
}

// connect counts one of the rule's connections. release ends it.
func (t *meter) connect() bool {
	if t == nil {
		return true
	}
	n, limit := t.open.Add(1), t.maxOpen.Load()
	if limit > 0 && n > limit {
		t.open.Add(-1)
		return false
	}
	return true
}

func (t *meter) release() {
	if t != nil {
		t.open.Add(-1)
	}
}
