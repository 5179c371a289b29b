// Package entrydata owns decoding the data of audit entries: which type each kind of entry has.
package entrydata

import (
	"encoding/json"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/ingest"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
)

// Of returns the data of an entry as the type of its kind: payload.Started for sandbox.started,
// egress.Record for flow, and so on. It returns nil for a kind without a type here, and for data in
// another format: a sandbox chooses part of it, and a later version may have changed it.
func Of(kind audit.Kind, data json.RawMessage) any {
	read, known := readers[kind]
	if !known {
		return nil
	}
	return read(data)
}

var readers = map[audit.Kind]func(json.RawMessage) any{
	audit.SandboxStarted: as[payload.Started],
	audit.SandboxEnded:   as[payload.Ended],
	audit.PolicyChanged:  as[payload.Policy],
	audit.CommandStarted: as[observe.Started],
	audit.CommandEnded:   as[observe.Ended],
	audit.Flow:           as[egress.Record],
	audit.Exec:           as[ingest.Exec],
	audit.Exit:           as[ingest.Exit],
	audit.File:           as[ingest.File],
	// Both the server and the engine write these; the engine's have more fields.
	audit.LimitHit: as[ingest.Limit],
}

func as[T any](data json.RawMessage) any {
	var value T
	if json.Unmarshal(data, &value) != nil {
		return nil
	}
	return value
}
