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
	decode, known := decoders[kind]
	if !known {
		return nil
	}
	return decode(data)
}

var decoders = map[audit.Kind]func(json.RawMessage) any{
	audit.SandboxStarted: decodeAs[payload.Started],
	audit.SandboxEnded:   decodeAs[payload.Ended],
	audit.PolicyChanged:  decodeAs[payload.Policy],
	audit.CommandStarted: decodeAs[observe.Started],
	audit.CommandEnded:   decodeAs[observe.Ended],
	audit.Flow:           decodeAs[egress.Record],
	audit.Exec:           decodeAs[ingest.Exec],
	audit.Exit:           decodeAs[ingest.Exit],
	audit.File:           decodeAs[ingest.File],
	// Both the server and the engine write entries of these kinds; the engine's have more fields.
	audit.LimitHit: decodeAs[ingest.Limit],
}

func decodeAs[T any](data json.RawMessage) any {
	var value T
	if json.Unmarshal(data, &value) != nil {
		return nil
	}
	return value
}
