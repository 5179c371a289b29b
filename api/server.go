package api

import "time"

// Pruned is the answer of POST /v1/prune.
type Pruned struct {
	Removed    []string `json:"removed" doc:"IDs of the stopped sandboxes whose records are gone."`
	FreedBytes int64    `json:"freed_bytes" doc:"Disk space that was freed of saved states that nothing refers to."`
}

// EngineList is the answer of GET /v1/engines.
type EngineList struct {
	Engines []Engine `json:"engines"`
}

// Engine is one engine, and the answer of GET /v1/engine.
type Engine struct {
	Name         string   `json:"name"`
	Version      string   `json:"version"`
	Boundary     string   `json:"boundary" enum:"none,shared-kernel,userspace-kernel,own-kernel" doc:"What is between a program and the host's kernel; a policy's isolation.at_least names the weakest that it accepts."`
	Default      bool     `json:"default" doc:"It is the engine of sandboxes that name none."`
	Available    bool     `json:"available" doc:"Sandboxes can run on it on this host."`
	Reason       string   `json:"reason,omitempty" doc:"Why it is not available."`
	Fix          string   `json:"fix,omitempty" doc:"What to do about that."`
	NeedsRoot    bool     `json:"needs_root"`
	Capabilities []string `json:"capabilities" doc:"What it can do that not every engine can."`
	Enforces     []string `json:"enforces" doc:"Limits that hold on this host."`
	Notes        []string `json:"notes" doc:"What is weaker on this host than it could be."`
	Defaults     Limits   `json:"defaults" doc:"Limits of a sandbox that asks for none."`
}

// Key is an API key without its secret, which no caller can read back.
type Key struct {
	ID         string     `json:"id"`
	Name       string     `json:"name,omitempty"`
	Opens      string     `json:"opens" enum:"api,mcp" doc:"What it is good for: the whole API, or the tools of agents at /mcp alone."`
	CreatedAt  time.Time  `json:"created_at"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty" doc:"To the minute; absent is never."`
}

// CreateKey is the body of POST /v1/keys.
type CreateKey struct {
	Name  string `json:"name,omitempty" maxLength:"63"`
	Opens string `json:"opens,omitempty" enum:"api,mcp" doc:"What it is good for: the whole API, which absent is too, or the tools of agents at /mcp alone."`
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
	Domain  string `json:"domain,omitempty" doc:"What host names of sandboxes end in: port 8080 is at 8080-ID.DOMAIN. Absent if they have none."`
}

// Problem is every error answer, as application/problem+json (RFC 9457).
type Problem struct {
	Kind   string `json:"kind" doc:"What a caller can do about it."`
	Code   string `json:"code" doc:"Stable machine name."`
	Title  string `json:"title"`
	Detail string `json:"detail,omitempty"`
	Hint   string `json:"hint,omitempty" doc:"What would help."`
	Status int    `json:"status"`
	// RetryAfterSeconds is also the header Retry-After.
	RetryAfterSeconds int `json:"retry_after_seconds,omitempty" doc:"When to try again; absent if that is not known."`
}
