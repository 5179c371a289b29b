package v1

import (
	"context"
	"encoding/base64"
	"sync"
	"time"

	"github.com/crannog/crannog/api"
)

const (
	// stampEvery is how often a checkpoint is signed for results of commands,
	// and stampTimeout how long that may take.
	stampEvery   = 100 * time.Millisecond
	stampTimeout = 5 * time.Second
)

// stamps are the checkpoints that go with results. A command does not wait for
// the disk: it gets the newest that there is, which covers what was before it
// began to be signed, and lets the next be signed if that was a while ago.
type stamps struct {
	mu   sync.Mutex
	last *api.Checkpoint
	at   time.Time
	busy bool
}

// newest is nil until the first is signed.
func (s *server) newest() *api.Checkpoint {
	if s.Record == nil {
		return nil
	}
	s.stamps.mu.Lock()
	defer s.stamps.mu.Unlock()
	if !s.stamps.busy && time.Since(s.stamps.at) >= stampEvery {
		s.stamps.busy = true
		go s.stamp()
	}
	return s.stamps.last
}

func (s *server) stamp() {
	ctx, cancel := context.WithTimeout(context.Background(), stampTimeout)
	defer cancel()
	c, err := s.Record.Checkpoint(ctx)
	s.stamps.mu.Lock()
	defer s.stamps.mu.Unlock()
	s.stamps.busy, s.stamps.at = false, time.Now()
	if err != nil {
		s.Log.Debug("no checkpoint for results", "err", err)
		return
	}
	out := toCheckpoint(c)
	s.stamps.last = &out
}

// covering is a checkpoint over all that was done so far, for a header, or ""
// if there is none: what was done is done.
func (s *server) covering(ctx context.Context) string {
	if s.Record == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stampTimeout)
	defer cancel()
	c, err := s.Record.Checkpoint(ctx)
	if err != nil {
		s.Log.Warn("no checkpoint for a removal", "err", err)
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(c.Note))
}

// removedOutput is the answer of a removal.
type removedOutput struct {
	Checkpoint string `header:"Crannog-Checkpoint" doc:"A checkpoint of the record that covers all that the sandbox did: a signed note, in base64."`
}
