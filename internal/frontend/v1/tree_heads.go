package v1

import (
	"context"
	"encoding/base64"
	"log/slog"
	"sync"
	"time"

	"github.com/crannog/crannog/api"
)

const (
	// signEvery is how often a tree head is signed for results of commands, and signTimeout
	// bounds the signing.
	signEvery   = 100 * time.Millisecond
	signTimeout = 5 * time.Second
)

// treeHeads signs tree heads of the audit log for results of requests. A command does not wait for
// the disk: its result contains the newest existing tree head, which covers the entries before it
// was signed. If the newest is old, another one is signed in the background.
type treeHeads struct {
	auditLog AuditLog // nil signs nothing
	log      *slog.Logger

	mu   sync.Mutex
	last *api.Checkpoint
	at   time.Time
	busy bool
}

// newest returns the newest tree head, or nil until the first is signed.
func (t *treeHeads) newest() *api.Checkpoint {
	if t.auditLog == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.busy && time.Since(t.at) >= signEvery {
		t.busy = true
		go t.sign()
	}
	return t.last
}

func (t *treeHeads) sign() {
	ctx, cancel := context.WithTimeout(context.Background(), signTimeout)
	defer cancel()
	c, err := t.auditLog.Checkpoint(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy, t.at = false, time.Now()
	if err != nil {
		t.log.Debug("no tree head for results", "err", err)
		return
	}
	out := toCheckpoint(c)
	t.last = &out
}

// covering returns a tree head over all entries so far, for a header. If signing fails it returns
// "", because the request's effect cannot be undone.
func (t *treeHeads) covering(ctx context.Context) string {
	if t.auditLog == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signTimeout)
	defer cancel()
	c, err := t.auditLog.Checkpoint(ctx)
	if err != nil {
		t.log.Warn("no tree head for a removal", "err", err)
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(c.Note))
}

// removedOutput is the answer to a removal.
type removedOutput struct {
	Checkpoint string `header:"Crannog-Checkpoint" doc:"A signed tree head of the audit log that covers all entries of the sandbox: a signed note, in base64."`
}
