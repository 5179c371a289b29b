package audit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Sink is a destination outside the log for its signed tree heads. An attacker with the signing key
// can forge another log, but cannot change what a sink has received.
type Sink interface {
	Put(ctx context.Context, c Checkpoint) error
}

const (
	sinkTimeout    = 10 * time.Second
	sinkRetryPause = time.Second // doubles with each failure
	maxRetryPause  = time.Minute
)

// forwarder delivers tree heads to one sink. A newer tree head replaces one that is not delivered
// yet, because it covers everything that the older one covers.
type forwarder struct {
	sink Sink
	log  *slog.Logger

	mu       sync.Mutex
	pending  *Checkpoint
	running  bool
	closed   bool
	failures int
	stop     chan struct{}
	idle     chan struct{}
}

func newForwarder(s Sink, log *slog.Logger) *forwarder {
	return &forwarder{sink: s, log: log, stop: make(chan struct{})}
}

// offer makes c the next tree head to deliver. It does not wait for the delivery.
func (o *forwarder) offer(c Checkpoint) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = &c
	if !o.running {
		o.running = true
		o.idle = make(chan struct{})
		go o.run(o.idle)
	}
}

// run delivers tree heads until none is pending. After close it tries each one only once.
func (o *forwarder) run(idle chan struct{}) {
	defer close(idle)
	pause := sinkRetryPause
	for {
		o.mu.Lock()
		next := o.pending
		if next == nil {
			o.running = false
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), sinkTimeout)
		err := o.sink.Put(ctx, *next)
		cancel()
		o.mu.Lock()
		if err == nil && o.pending == next {
			o.pending = nil
		}
		if err != nil {
			o.failures++
			if o.closed {
				o.running = false
				o.mu.Unlock()
				return
			}
		}
		o.mu.Unlock()
		if err == nil {
			pause = sinkRetryPause
			continue
		}
		o.log.Error("tree head not delivered", "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-o.stop:
			timer.Stop()
		}
		pause = min(2*pause, maxRetryPause)
	}
}

func (o *forwarder) state() (failures int, behind bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failures, o.pending != nil
}

// close tries to deliver one last time.
func (o *forwarder) close() error {
	o.mu.Lock()
	if !o.closed {
		o.closed = true
		close(o.stop)
	}
	idle := o.idle
	o.mu.Unlock()
	if idle != nil {
		<-idle
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pending != nil {
		return fmt.Errorf("audit log: the signed tree head of %d entries was not delivered", o.pending.Size)
	}
	return nil
}
