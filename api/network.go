package api

import "time"

// Access sets what a sandbox may reach and change. Absent fields are the
// server's defaults; a sandbox for which nothing asks for a network has none.
type Access struct {
	Level  string   `json:"level,omitempty" enum:"strict,standard,light,minimal" doc:"What the policy is added to; standard if absent."`
	Net    string   `json:"net,omitempty" enum:"none,dev,open,policy" doc:"none, dev (package registries, git forges, model APIs), open (all public hosts), or policy (as the policy says). Absent is policy if policy or allow is given, else none."`
	Allow  []string `json:"allow,omitempty" maxItems:"1024" doc:"Hosts that may be reached, as host or host:port."`
	Policy string   `json:"policy,omitempty" maxLength:"1048576" doc:"A policy document in YAML."`
	// Artifacts narrow what comes out beside what the policy says.
	Artifacts []string `json:"artifacts,omitempty" maxItems:"256" doc:"Globs below the workspace: nothing else ever comes out of it."`
}

// Network is what a sandbox can reach.
type Network struct {
	// Attached is set if the sandbox has a network attachment.
	Attached bool `json:"attached" doc:"Whether the sandbox has a network attachment; without one it reaches nothing."`
	// Linked is the earlier name of Attached. Both are set.
	Linked bool   `json:"linked" deprecated:"true" doc:"The earlier name of attached."`
	Net    string `json:"net" doc:"none, dev, open or policy."`
	Level  string `json:"level"`
	Policy string `json:"policy" doc:"Digest of the policy in force."`
	// Lost is set when the process that held the link has died.
	Lost bool `json:"lost,omitempty" doc:"The link is gone for good: nothing can be reached any more."`
}

// Check is one thing that a sandbox's first process tried, as programs inside
// could, before the sandbox was ready.
type Check struct {
	Check string `json:"check" doc:"What was tried, from inside."`
	Holds bool   `json:"holds"`
}

// AskAccess is the body of POST /v1/sandboxes/{id}/access/ask.
type AskAccess struct {
	Host        string  `json:"host" minLength:"1" maxLength:"253" doc:"One exact name or IPv4 address."`
	Port        int     `json:"port,omitempty" minimum:"1" maximum:"65535" doc:"443 if absent."`
	Reason      string  `json:"reason,omitempty" maxLength:"512" doc:"Why, for the person who decides. It is shown as unchecked."`
	WaitSeconds float64 `json:"wait_seconds,omitempty" minimum:"0" maximum:"60" doc:"How long to wait for an answer; not at all if absent."`
}

// AskedAccess is what came of it. The same question asked again waits on.
type AskedAccess struct {
	State    string `json:"state" enum:"approved,pending,denied,expired"`
	Approval string `json:"approval,omitempty" doc:"ID of the question; absent if no person had to be asked."`
	Reason   string `json:"reason,omitempty" doc:"What the person said who decided."`
}

// FlowRecord is one thing that a sandbox did over its link, or tried to.
type FlowRecord struct {
	Time       time.Time `json:"time"`
	Sandbox    string    `json:"sandbox"`
	Seq        uint64    `json:"seq"`
	Kind       string    `json:"kind" doc:"dns, tcp, tls, tunnel, connect, http, websocket, git, publish, packet or link."`
	Method     string    `json:"method,omitempty"`
	Host       string    `json:"host,omitempty"`
	Port       int       `json:"port,omitempty"`
	Path       string    `json:"path,omitempty" doc:"Without its query, which often holds secrets."`
	Address    string    `json:"address,omitempty" doc:"Where the connection really went."`
	Status     int       `json:"status,omitempty"`
	Effect     string    `json:"effect" doc:"allow, ask or deny."`
	Rule       string    `json:"rule" doc:"What decided."`
	Layer      string    `json:"layer,omitempty"`
	Policy     string    `json:"policy,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Fix        string    `json:"fix,omitempty" doc:"What would allow it."`
	Sent       int64     `json:"sent_bytes,omitempty"`
	Received   int64     `json:"received_bytes,omitempty"`
	DurationMS float64   `json:"duration_ms,omitempty"`
	Approval   string    `json:"approval,omitempty"`
	Secrets    []string  `json:"secrets,omitempty" doc:"Names of the secrets that were set on it."`
	Error      string    `json:"error,omitempty"`
	Probe      bool      `json:"probe,omitempty" doc:"It was tried by the sandbox's first process, before the sandbox was ready, to see that the policy holds."`
}

// FlowList is the answer of GET /v1/sandboxes/{id}/network/log.
type FlowList struct {
	Records []FlowRecord `json:"records"`
	// Asked are the names that programs asked for in a sandbox without a
	// network.
	Asked []string `json:"asked,omitempty" doc:"Names that were asked for in a sandbox without a network."`
}

// Policy is the answer of GET /v1/sandboxes/{id}/policy.
type Policy struct {
	Digest   string        `json:"digest"`
	Level    string        `json:"level"`
	Document string        `json:"document" doc:"Everything that holds, as one YAML document for people."`
	Layers   []PolicyLayer `json:"layers" doc:"What it was made from, the upper layers first."`
}

// PolicyLayer is one document of a policy.
type PolicyLayer struct {
	Kind     string `json:"kind" doc:"level, organisation, project or task."`
	Document string `json:"document"`
}
