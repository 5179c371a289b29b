// Package entrydata decodes the data of audit entries into the type of each kind of entry.
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
// egress.Record for flow, and so on. It returns nil for a kind without a type here. It also returns
// nil for data in another format, because a sandbox chooses part of the data, and a later version
// may have changed the format.
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
	// Both the server and the engine write entries of these kinds; the engine's have more fields.
	audit.LimitHit: as[ingest.Limit],
}

func as[T any](data json.RawMessage) any {
	var value T
	if json.Unmarshal(data, &value) != nil {
		return nil
	}
	return value
}
