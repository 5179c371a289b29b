package api

import "time"

// Pruned is the answer of POST /v1/prune.
type Pruned struct {
	Removed    []string `json:"removed" doc:"IDs of the removed sandboxes."`
	FreedBytes int64    `json:"freed_bytes" doc:"Disk space that was freed by deleting saved states that nothing refers to."`
}

// EngineList is the answer of GET /v1/engines.
type EngineList struct {
	Engines []Engine `json:"engines"`
}

// Engine is one engine, and the answer of GET /v1/engine.
type Engine struct {
	Name         string   `json:"name"`
	Version      string   `json:"version"`
	Boundary     string   `json:"boundary" enum:"none,shared-kernel,wasm-runtime,userspace-kernel,own-kernel" doc:"What is between a program and the host's kernel; a policy's isolation.at_least names the weakest that it accepts."`
	Default      bool     `json:"default" doc:"It is the default engine."`
	Available    bool     `json:"available" doc:"Sandboxes can run on it on this host."`
	Reason       string   `json:"reason,omitempty" doc:"Why it is not available."`
	Fix          string   `json:"fix,omitempty" doc:"How to make it available."`
	NeedsRoot    bool     `json:"needs_root"`
	Capabilities []string `json:"capabilities" doc:"Optional capabilities."`
	Enforces     []string `json:"enforces" doc:"Limits that it enforces on this host."`
	Images       []string `json:"images" doc:"What sandboxes can start from: host-view (the host's programs, as the template base), oci (an OCI image), layers, disk, module."`
	Notes        []string `json:"notes" doc:"Restrictions on this host."`
	Defaults     Limits   `json:"defaults" doc:"Default limits of a sandbox."`
}

// Key describes an API key. No caller can read its secret.
type Key struct {
	ID         string     `json:"id"`
	Name       string     `json:"name,omitempty"`
	Opens      string     `json:"opens" enum:"api,mcp" doc:"Scope: the whole API, or only the agents' tools at /mcp."`
	CreatedAt  time.Time  `json:"created_at"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty" doc:"Last use, to the minute; absent means never."`
}

// CreateKey is the body of POST /v1/keys.
type CreateKey struct {
	Name  string `json:"name,omitempty" maxLength:"63"`
	Opens string `json:"opens,omitempty" enum:"api,mcp" doc:"Scope: the whole API (the default), or only the agents' tools at /mcp."`
}

// NewKey is the answer of POST /v1/keys: the only time the secret is shown.
type NewKey struct {
	Key
	Secret string `json:"secret"`
}

// KeyList is the answer of GET /v1/keys.
type KeyList struct {
	Keys []Key `json:"keys"`
}

// Version is the answer of GET /v1/version.
type Version struct {
	Version string `json:"version"`
	API     string `json:"api"`
	Domain  string `json:"domain,omitempty" doc:"Domain of the host names of sandboxes: port 8080 is at 8080-ID.DOMAIN. Absent if they have none."`
}

// Problem is every error answer, as application/problem+json (RFC 9457).
type Problem struct {
	Kind   string `json:"kind" doc:"Kind of the error."`
	Code   string `json:"code" doc:"Stable machine name."`
	Title  string `json:"title"`
	Detail string `json:"detail,omitempty"`
	Hint   string `json:"hint,omitempty" doc:"Next step for the caller."`
	Status int    `json:"status"`
	// RetryAfterSeconds is also the header Retry-After.
	RetryAfterSeconds int `json:"retry_after_seconds,omitempty" doc:"When to try again; absent if that is not known."`
}
