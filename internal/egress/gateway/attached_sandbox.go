package gateway

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/egress/policy"
)

// packetHandler decides about a sandbox's packets.
type packetHandler interface {
	attachment.Handler
	// Update puts a new policy and new secrets into force. If it fails, the old ones remain in
	// force.
	Update(p *policy.Policy, s []egress.Secret) error
	// ExpectProbes announces that the sandbox's first process is about to run the readiness probe.
	ExpectProbes()
	// Close ends all connections that it allowed.
	Close()
}

// attachedSandbox is one sandbox's attachment with everything that belongs to it.
type attachedSandbox struct {
	id      string
	since   time.Time
	records *recorder
	handler packetHandler
	link    attachment.Attachment
	asking  atomic.Int64
	gone    chan struct{} // closed first when the sandbox ends

	// changing is held during an update, so that updates follow one another.
	changing sync.Mutex

	mu         sync.Mutex
	digest     string
	controller *peer
	changed    chan struct{} // closed when controller changes

	once sync.Once
}

func newAttachedSandbox(id string, records *recorder, digest string) *attachedSandbox {
	return &attachedSandbox{id: id, since: time.Now().UTC(), records: records, digest: digest, gone: make(chan struct{}), changed: make(chan struct{})}
}

func (b *attachedSandbox) policy() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.digest
}

func (b *attachedSandbox) update(p *policy.Policy, s []egress.Secret, runsProbe bool) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	if err := b.handler.Update(p, s); err != nil {
		return err
	}
	if runsProbe {
		b.handler.ExpectProbes()
	}
	b.mu.Lock()
	b.digest = p.Digest()
	b.mu.Unlock()
	return nil
}

func (b *attachedSandbox) status() Status {
	owner, _ := b.owner()
	s := Status{Sandbox: b.id, Since: b.since, Controlled: owner != nil, Policy: b.policy(), Connections: b.link.Counts().Connections}
	b.records.fill(&s)
	return s
}

// close ends the attachment and waits for it. It closes the flow file last, so that final entries
// can still be written.
func (b *attachedSandbox) close() {
	b.once.Do(func() {
		close(b.gone)
		if b.link != nil {
			_ = b.link.Close() // it is gone in any case
		}
		if b.handler != nil {
			b.handler.Close()
		}
		b.records.close()
	})
}
