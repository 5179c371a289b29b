package api

import "time"

// Access sets the network access and the policy of a sandbox. Absent fields are the server's
// defaults. Without any network setting a sandbox has no network.
type Access struct {
	Level  string   `json:"level,omitempty" enum:"strict,standard,light,minimal" doc:"Level that the policy is added to; standard if absent."`
	Net    string   `json:"net,omitempty" enum:"none,dev,open,policy" doc:"none, dev (package registries, git forges, model APIs), open (all public hosts), or policy (as the policy says). Absent is policy if policy or allow is given, else none."`
	Allow  []string `json:"allow,omitempty" maxItems:"1024" doc:"Allowed hosts, as host or host:port."`
	Policy string   `json:"policy,omitempty" maxLength:"1048576" doc:"A policy document in YAML."`
	// Artifacts further limit which files may be exported.
	Artifacts []string `json:"artifacts,omitempty" maxItems:"256" doc:"Globs below the workspace: only matching files can be exported."`
}

// Network describes the network of a sandbox.
type Network struct {
	// Attached is set if the sandbox has a network attachment.
	Attached bool `json:"attached" doc:"Whether the sandbox has a network attachment; without one it reaches nothing."`
	// Linked is the earlier name of Attached. Both are set.
	Linked bool   `json:"linked" deprecated:"true" doc:"The earlier name of attached."`
	Net    string `json:"net" doc:"none, dev, open or policy."`
	Level  string `json:"level"`
	Policy string `json:"policy" doc:"Digest of the policy in force."`
	// Lost is set if the process that held the network attachment has died.
	Lost bool `json:"lost,omitempty" doc:"The network attachment is lost for good: the sandbox reaches nothing."`
	// Attachment is how the sandbox is connected to the egress gateway.
	Attachment string   `json:"attachment,omitempty" doc:"How the sandbox is connected to the egress gateway: by a network interface (packets, tap, ethernet) or only by a proxy on its loopback interface (proxy). Absent without a network."`
	NotCarried []string `json:"not_carried,omitempty" doc:"What programs cannot send over this attachment, whatever the policy allows."`
}

// Check is one result of the readiness probe, in which the sandbox's first process makes the same
// attempts as programs inside could.
type Check struct {
	Check string `json:"check" doc:"Attempt from inside."`
	Holds bool   `json:"holds"`
}

// AskAccess is the body of POST /v1/sandboxes/{id}/access/ask.
type AskAccess struct {
	Host        string  `json:"host" minLength:"1" maxLength:"253" doc:"One exact name or IPv4 address."`
	Port        int     `json:"port,omitempty" minimum:"1" maximum:"65535" doc:"443 if absent."`
	Reason      string  `json:"reason,omitempty" maxLength:"512" doc:"Reason for the person who decides. It is shown as unverified."`
	WaitSeconds float64 `json:"wait_seconds,omitempty" minimum:"0" maximum:"60" doc:"Time to wait for a decision; no wait if absent."`
}

// AskedAccess is the answer of POST /v1/sandboxes/{id}/access/ask. Repeating the
// request continues the wait.
type AskedAccess struct {
	State    string `json:"state" enum:"approved,pending,denied,expired"`
	Approval string `json:"approval,omitempty" doc:"ID of the approval request; absent if none was needed."`
	Reason   string `json:"reason,omitempty" doc:"Reason given by the person who decided."`
}

// FlowRecord is one flow: a connection or request of a sandbox, or an attempt.
type FlowRecord struct {
	Time       time.Time `json:"time"`
	Sandbox    string    `json:"sandbox"`
	Seq        uint64    `json:"seq"`
	Kind       string    `json:"kind" doc:"dns, tcp, tls, tunnel, connect, http, websocket, git, publish, packet or link."`
	Method     string    `json:"method,omitempty"`
	Host       string    `json:"host,omitempty"`
	Port       int       `json:"port,omitempty"`
	Path       string    `json:"path,omitempty" doc:"Without its query, which often holds secrets."`
	Address    string    `json:"address,omitempty" doc:"Address that the gateway connected to."`
	Status     int       `json:"status,omitempty"`
	Effect     string    `json:"effect" doc:"allow, ask or deny."`
	Rule       string    `json:"rule" doc:"Rule that decided."`
	Layer      string    `json:"layer,omitempty"`
	Policy     string    `json:"policy,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Fix        string    `json:"fix,omitempty" doc:"Change that would allow it."`
	Sent       int64     `json:"sent_bytes,omitempty"`
	Received   int64     `json:"received_bytes,omitempty"`
	DurationMS float64   `json:"duration_ms,omitempty"`
	Approval   string    `json:"approval,omitempty"`
	Secrets    []string  `json:"secrets,omitempty" doc:"Names of the secrets that the gateway set on the request."`
	Error      string    `json:"error,omitempty"`
	// Package is set if the package cache answered.
	Package *PackageFact `json:"package,omitempty" doc:"Answer of the package cache."`
	Probe   bool         `json:"probe,omitempty" doc:"The flow is part of the readiness probe."`
}

// FlowList is the answer of GET /v1/sandboxes/{id}/network/log.
type FlowList struct {
	Records []FlowRecord `json:"records"`
	// Asked contains the names that programs tried to resolve in a sandbox without a network.
	Asked []string `json:"asked,omitempty" doc:"Names that a sandbox without a network tried to resolve."`
}

// Policy is the answer of GET /v1/sandboxes/{id}/policy.
type Policy struct {
	Digest   string        `json:"digest"`
	Level    string        `json:"level"`
	Document string        `json:"document" doc:"Effective policy, as one YAML document."`
	Layers   []PolicyLayer `json:"layers" doc:"The layers that it combines, the highest first."`
}

// PolicyLayer is one document of a policy.
type PolicyLayer struct {
	Kind     string `json:"kind" doc:"level, organisation, project or task."`
	Document string `json:"document"`
}
