package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/frontend/entrydata"
	"github.com/crannog/crannog/internal/packages/figures"
	packagestore "github.com/crannog/crannog/internal/packages/store"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// packageCache is the package cache for callers. Each request that changes it creates one audit
// entry, which names the caller.
type packageCache struct {
	*packagestore.Store
	log     *auditlog.Log
	counter *figures.Counter
}

func (d *Server) packageCache() packageCache {
	return packageCache{d.gateway.packages, d.Service.AuditLog(), &d.gateway.answered}
}

// Prune implements v1.PackageCache.
func (p packageCache) Prune(ctx context.Context, caller sandbox.Principal, maxBytes int64) (packagestore.Pruned, error) {
	ctx, action := p.log.Begin(ctx, caller.Actor(), "package.prune", "")
	done, err := p.Store.Prune(maxBytes)
	return done, action.Finish(ctx, err)
}

// Verify implements v1.PackageCache. It removes what is damaged.
func (p packageCache) Verify(ctx context.Context, caller sandbox.Principal) (packagestore.Verified, error) {
	ctx, action := p.log.Begin(ctx, caller.Actor(), "package.verify", "")
	done, err := p.Store.Verify(ctx)
	return done, action.Finish(ctx, err)
}

// Answers implements v1.PackageFigures.
func (p packageCache) Answers() figures.Totals { return p.counter.Totals() }

const (
	// countPause is how long metrics may be behind the audit log. Following each entry would have the
	// log's index updated for each, which costs more than the entry.
	countPause = 2 * time.Second
	// recountPause is the pause after the audit log could not be read.
	recountPause = time.Minute
)

// countPackages counts the answers of the package cache and the decisions of the egress gateway
// until the returned function is called. The gateway is another process, whose flows the audit log
// has.
func (d *Server) countPackages(ctx context.Context) (func(), error) {
	next := int64(0)
	err := d.Audit.Read(ctx, audit.Filter{Newest: true, Limit: 1}, false, func(e audit.Entry) error {
		next = e.Seq + 1
		return nil
	})
	if ctx.Err() != nil {
		return func() {}, nil // The server is shutting down before it has begun to serve.
	}
	if err != nil {
		return nil, fmt.Errorf("count packages: %w", err)
	}
	counter := &d.gateway.answered
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			pause := countPause
			err := d.Audit.Read(ctx, audit.Filter{Kinds: []audit.Kind{audit.Flow}, From: next}, false, func(e audit.Entry) error {
				next = e.Seq + 1
				countAnswer(counter, e.Data)
				d.countDecision(e)
				return nil
			})
			if err != nil && ctx.Err() == nil {
				d.options.Log.Warn("the package metrics are behind the audit log", "err", err)
				pause = recountPause
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}()
	return func() { cancel(); <-ended }, nil
}

// countAnswer counts the flow in an audit entry if it is an answer of the package cache.
func countAnswer(to *figures.Counter, data json.RawMessage) {
	// Most flows are of other hosts, and decoding each would cost more than the rest.
	if !bytes.Contains(data, []byte(`"package":`)) {
		return
	}
	r, ok := entrydata.Of(audit.Flow, data).(egress.Record)
	// An action with an entry at its beginning has another one at its end.
	if ok && r.Package != nil && !r.Begins {
		to.Add(*r.Package, r.Rule, r.Received)
	}
}
