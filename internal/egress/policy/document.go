package policy

import "github.com/crannog/crannog/internal/egress"

// Document is a policy as people write it. Its level decides about what it does not mention; what
// it says can only be stricter than the layers above it, except that it may list hosts.
type Document struct {
	// Version of the format: v1.
	Policy string `yaml:"policy" json:"policy"`
	// For people. Up to 64 letters, digits and any of . _ - /.
	Name string `yaml:"name,omitempty" json:"name,omitempty"`
	// The level that the rest is added to: strict, standard, light or minimal. Of several layers
	// the strictest counts.
	Level string `yaml:"level,omitempty" json:"level,omitempty"`
	// How strong the boundary between the sandbox and the host's kernel must be.
	Isolation Isolation `yaml:"isolation,omitempty" json:"isolation,omitzero"`
	// What is mounted, and how.
	Filesystem Filesystem `yaml:"filesystem,omitempty" json:"filesystem,omitzero"`
	// What may be reached.
	Network Network `yaml:"network,omitempty" json:"network,omitzero"`
	// What may be fetched and pushed.
	Git Git `yaml:"git,omitempty" json:"git,omitzero"`
	// What may be installed and published.
	Packages Packages `yaml:"packages,omitempty" json:"packages,omitzero"`
	// Which sealed values go where.
	Secrets Secrets `yaml:"secrets,omitempty" json:"secrets,omitzero"`
	// How people are asked.
	Approvals Approvals `yaml:"approvals,omitempty" json:"approvals,omitzero"`
	// What is redacted.
	Redact Redact `yaml:"redact,omitempty" json:"redact,omitzero"`
}

// Isolation is the weakest boundary that is accepted.
type Isolation struct {
	// none, shared-kernel, wasm-runtime, userspace-kernel or own-kernel. A sandbox is not started
	// on an engine with less.
	AtLeast string `yaml:"at_least,omitempty" json:"at_least,omitempty"`
	// Whether container engines such as Docker may run inside, when a request asks for it: allow or
	// deny.
	Containers string `yaml:"containers,omitempty" json:"containers,omitempty"`
}

// Filesystem holds the rules for reading and writing the sandbox's file tree.
type Filesystem struct {
	// How the task's files come in.
	Workspace Workspace `yaml:"workspace,omitempty" json:"workspace,omitzero"`
	// Paths that may be read. Those of a lower layer must lie inside those of its upper one.
	Read []string `yaml:"read,omitempty" json:"read,omitempty"`
	// Paths that may be written. Those of a lower layer must lie inside those of its upper one.
	Write []string `yaml:"write,omitempty" json:"write,omitempty"`
	// Globs of files that do not come in. Layers add up.
	Deny []string `yaml:"deny,omitempty" json:"deny,omitempty"`
	// What happens to a sandbox whose hidden files are tracked by git, so that its history shows
	// them: allow starts it, hide starts it without the history, deny does not start it.
	Tracked string `yaml:"tracked,omitempty" json:"tracked,omitempty"`
	// Whether programs that version managers installed in the home directory may be mounted
	// copy-on-write on request: allow or deny.
	Tools string `yaml:"tools,omitempty" json:"tools,omitempty"`
	// Globs of files whose changes stay inside unless they are requested: programs inside change
	// their own copy. Layers add up.
	Protect []string `yaml:"protect,omitempty" json:"protect,omitempty"`
	// Globs of files that no program inside can change: they are mounted read-only, so that git and
	// editors cannot replace them either. Layers add up.
	ReadOnly []string `yaml:"read_only,omitempty" json:"read_only,omitempty"`
	// Which changes come out of the sandbox, through crannog apply and export. Links that lead out,
	// setuid files and devices never do.
	Export Export `yaml:"export,omitempty" json:"export,omitzero"`
}

// Export holds the rules for exporting changes.
type Export struct {
	// Files that were created or changed: allow, ask or deny.
	Do egress.Effect `yaml:"do,omitempty" json:"do,omitempty"`
	// Files that were removed inside and should be removed outside too: allow, ask or deny.
	Deletions egress.Effect `yaml:"deletions,omitempty" json:"deletions,omitempty"`
	// Globs below the workspace, such as dist/**, of the only files that may come out. Default is
	// all. A file must match each layer's.
	Only []string `yaml:"only,omitempty" json:"only,omitempty"`
}

// Workspace is how the task's files come in.
type Workspace struct {
	// copy, overlay or bind, from the strictest.
	Mode string `yaml:"mode,omitempty" json:"mode,omitempty"`
	// Whether the sandbox may write there.
	Writable *bool `yaml:"writable,omitempty" json:"writable,omitempty"`
}

// Network holds the rules for connections to other hosts.
type Network struct {
	// Hosts without a block: deny; ask; read, which allows GET and HEAD on ports 80 and 443 and
	// asks for everything else; or allow.
	Unlisted string `yaml:"unlisted,omitempty" json:"unlisted,omitempty"`
	// Requests other than GET and HEAD that a rule allows: deny, ask, or rule, which leaves the
	// decision to the rule.
	Writes string `yaml:"writes,omitempty" json:"writes,omitempty"`
	// Connections that cannot be inspected: allow, ask or deny. With deny, all TLS is decrypted.
	Tunnels egress.Effect `yaml:"tunnels,omitempty" json:"tunnels,omitempty"`
	// Requests that become a WebSocket: allow, ask or deny.
	WebSocket egress.Effect `yaml:"websocket,omitempty" json:"websocket,omitempty"`
	// Blocks, at most 1024. Exactly one decides about a request.
	Hosts []Host `yaml:"hosts,omitempty" json:"hosts,omitempty"`
}

// Host is a block of rules for one host, all hosts below a name, or a set of
// addresses.
type Host struct {
	// An exact name, or *. and a name for all names below it. Not with addresses.
	Host string `yaml:"host,omitempty" json:"host,omitempty"`
	// Addresses and prefixes for connections that are not made by name. Needs tunnel, unless all
	// its rules deny; then it also applies to what names resolve to.
	Addresses []string `yaml:"addresses,omitempty" json:"addresses,omitempty"`
	// Ports and ranges such as 8000-8010. Default 443. Plain HTTP is refused on 443.
	Ports Ports `yaml:"ports,omitempty" json:"ports,omitempty"`
	// Bytes pass without being decrypted or judged. Rules then have neither methods nor paths.
	Tunnel bool `yaml:"tunnel,omitempty" json:"tunnel,omitempty"`
	// The only private addresses that the name may resolve to. The built-in denials still apply.
	CIDRs []string `yaml:"cidrs,omitempty" json:"cidrs,omitempty"`
	// Whether %2F is allowed in a path, as in npm's scoped names.
	EncodedSlash bool `yaml:"encoded_slash,omitempty" json:"encoded_slash,omitempty"`
	// WebSockets of this host: allow, ask or deny. Default is network.websocket, which it cannot
	// loosen.
	WebSocket egress.Effect `yaml:"websocket,omitempty" json:"websocket,omitempty"`
	// How people are asked about this host.
	Approval HostApproval `yaml:"approval,omitempty" json:"approval,omitzero"`
	// Deny wins over ask, ask over allow. What no rule matches is denied.
	Rules []Rule `yaml:"rules,omitempty" json:"rules,omitempty"`
}

// HostApproval tightens approvals for one host.
type HostApproval struct {
	// Votes that are required: 1 to 10. The larger of this and approvals.quorum counts.
	Quorum int `yaml:"quorum,omitempty" json:"quorum,omitempty"`
	// Lifetime of a request for approval. The shorter of this and approvals.timeout counts.
	Timeout Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
}

// Rule is a verdict about some requests to a host.
type Rule struct {
	// Unique in its block. Up to 64 letters, digits and any of . _ -. Default is rule- and its
	// position, from 1.
	ID string `yaml:"id,omitempty" json:"id,omitempty"`
	// HTTP methods in upper case. Default is all.
	Methods []string `yaml:"methods,omitempty" json:"methods,omitempty"`
	// Globs: * matches within a segment, ** any number of segments. Default is all.
	Paths []string `yaml:"paths,omitempty" json:"paths,omitempty"`
	// allow, ask or deny.
	Do egress.Effect `yaml:"do" json:"do"`
	// How much is allowed. Without it, the sandbox's own limits apply.
	Limits RuleLimits `yaml:"limits,omitempty" json:"limits,omitzero"`
}

// RuleLimits limit what one rule allows. Where one is absent, only the sandbox's own limits apply.
type RuleLimits struct {
	// Requests in each window. Needs per.
	Requests int64 `yaml:"requests,omitempty" json:"requests,omitempty"`
	// The window of requests: 1s to 24h.
	Per Duration `yaml:"per,omitempty" json:"per,omitempty"`
	// Bytes sent and received, over the sandbox's life.
	Bytes int64 `yaml:"bytes,omitempty" json:"bytes,omitempty"`
	// Connections at one time.
	Connections int `yaml:"connections,omitempty" json:"connections,omitempty"`
}

// Git holds the rules for fetches and pushes.
type Git struct {
	// Fetches from repositories that are not under remotes: allow, ask or deny.
	Fetch egress.Effect `yaml:"fetch,omitempty" json:"fetch,omitempty"`
	// Pushes.
	Push Push `yaml:"push,omitempty" json:"push,omitzero"`
	// Repositories that may be fetched from, and the refs that may be pushed to.
	Remotes []Remote `yaml:"remotes,omitempty" json:"remotes,omitempty"`
}

// Push holds the rules for pushes.
type Push struct {
	// Refs that no remote lists: allow, ask or deny.
	Unlisted egress.Effect `yaml:"unlisted,omitempty" json:"unlisted,omitempty"`
	// Deletions, also of listed refs: allow, ask or deny.
	Delete egress.Effect `yaml:"delete,omitempty" json:"delete,omitempty"`
	// Pushes that drop commits, also to listed refs: allow, ask or deny.
	Force egress.Effect `yaml:"force,omitempty" json:"force,omitempty"`
}

// Remote is a repository.
type Remote struct {
	// An exact name.
	Host string `yaml:"host" json:"host"`
	// A glob of the repository's path, without a slash before it or .git behind it.
	Repo string `yaml:"repo" json:"repo"`
	// Globs of full ref names, such as refs/heads/agent/**. Default is none.
	Push []string `yaml:"push,omitempty" json:"push,omitempty"`
}

// Packages holds the rules for installing and publishing packages.
type Packages struct {
	// npm, PyPI, crates, OCI images and releases: allow, ask or deny.
	Publish egress.Effect `yaml:"publish,omitempty" json:"publish,omitempty"`
	// Ecosystems whose packages come from the shared cache, verified against their registry's own
	// digests: npm, go, apt, pypi, crates, maven, oci (container images). The settings below are
	// about these only. Layers add up. Default is none, which fetches packages like anything else.
	Cache []string `yaml:"cache,omitempty" json:"cache,omitempty"`
	// Registries besides the public ones. Layers add up.
	Registries []Registry `yaml:"registries,omitempty" json:"registries,omitempty"`
	// A version that was published less than this ago looks as if it did not exist: 1s to 8760h.
	// The longest of all layers counts.
	MinAge Duration `yaml:"min_age,omitempty" json:"min_age,omitempty"`
	// The only packages that may be installed, as ECOSYSTEM:NAME or ECOSYSTEM:NAME@VERSION with
	// globs, such as npm:@acme/**. A package must match each layer's list.
	Allow []string `yaml:"allow,omitempty" json:"allow,omitempty"`
	// Packages that may not be installed, in the form of allow. Layers add up.
	Deny []string `yaml:"deny,omitempty" json:"deny,omitempty"`
	// Whether only what the cache already has may be installed.
	Offline *bool `yaml:"offline,omitempty" json:"offline,omitempty"`
	// Packages that may be installed although nothing vouches for their content, in the form of
	// allow: such as Go modules that the checksum database does not know, or apt:HOST/PATH/SUITE for
	// a Debian archive whose key is unknown. A package must match each layer's list, and each layer
	// with the ecosystem in cache needs one. Default is none.
	Unverified []string `yaml:"unverified,omitempty" json:"unverified,omitempty"`
	// Packages whose registry does not say when they were published, and that may be installed
	// despite min_age, in the form of allow. A package must match each layer's list, and each layer
	// with min_age needs one. Default is none.
	Undated []string `yaml:"undated,omitempty" json:"undated,omitempty"`
	// Versions with an advisory of at least this severity may not be installed: malware, critical,
	// high, moderate or low. The lowest of all layers counts. It needs an imported advisory database
	// for each ecosystem in cache.
	Advisories string `yaml:"advisories,omitempty" json:"advisories,omitempty"`
	// How old the imported advisories of an ecosystem may be: 1h to 8760h. With older ones its
	// packages are refused, because new advisories are unknown. The shortest of all layers counts.
	// Default is no limit.
	AdvisoriesMaxAge Duration `yaml:"advisories_max_age,omitempty" json:"advisories_max_age,omitempty"`
	// Advisories that are tolerated nevertheless, by their ID or an alias, such as
	// GHSA-35jh-r3h4-6jhm. An advisory must be in each layer's list, and each layer with advisories
	// needs one. Default is none.
	Accepted []string `yaml:"accepted,omitempty" json:"accepted,omitempty"`
	// Whether only what the lockfiles of the workspace name may be installed, with the digests that
	// they name. The lockfiles are read from the host when the sandbox is created. It is true if one
	// layer has it.
	LockfileOnly *bool `yaml:"lockfile_only,omitempty" json:"lockfile_only,omitempty"`
	// Packages that may be installed despite lockfile_only, in the form of allow, such as apt:**,
	// because apt, maven and oci have no lockfiles. A package must match each layer's list, and each
	// layer with lockfile_only needs one. Default is none.
	Unlocked []string `yaml:"unlocked,omitempty" json:"unlocked,omitempty"`
	// Whether the content of packages is inspected: report names findings in the audit log, refuse
	// also refuses the package. The strictest of all layers counts.
	Content string `yaml:"content,omitempty" json:"content,omitempty"`
	// Packages with findings that may be installed despite refuse, in the form of allow. A package
	// must match each layer's list, and each layer with refuse needs one. Default is none.
	Tolerated []string `yaml:"tolerated,omitempty" json:"tolerated,omitempty"`
	// The scanner that must find nothing in a file before it is served: clamd, ClamAV's daemon at the
	// server's setting package_scanner. A file that cannot be scanned is refused. It holds if one
	// layer has it.
	Scan string `yaml:"scan,omitempty" json:"scan,omitempty"`
}

// Registry is a host that serves packages.
type Registry struct {
	// An exact name.
	Host string `yaml:"host" json:"host"`
	// The protocol that it speaks: npm, go, apt, pypi, crates, maven or oci.
	Ecosystem string `yaml:"ecosystem" json:"ecosystem"`
}

// Secrets says which sealed values go where.
type Secrets struct {
	// When people are asked: never, first_use or each_task, from the loosest.
	Approve string `yaml:"approve,omitempty" json:"approve,omitempty"`
	// The longest lifetime of a binding. The shortest of all layers counts.
	MaxTTL Duration `yaml:"max_ttl,omitempty" json:"max_ttl,omitempty"`
	// Bindings, at most 64.
	Bind []Bind `yaml:"bind,omitempty" json:"bind,omitempty"`
}

// Bind sends one sealed value to one destination.
type Bind struct {
	// The secret's name: up to 64 letters, digits and any of . _ -.
	Name string `yaml:"name" json:"name"`
	// Where the value comes from: file:, env:, vault: or exec: with its argument. Default is the
	// store of secrets, under the name.
	From string `yaml:"from,omitempty" json:"from,omitempty"`
	// An exact name: never a wildcard, a tunnel or a service that echoes requests.
	Host string `yaml:"host" json:"host"`
	// Default 443. Not 80: values go over verified TLS only.
	Port int `yaml:"port,omitempty" json:"port,omitempty"`
	// The header that is set. Not with basic, which is always Authorization.
	Header string `yaml:"header,omitempty" json:"header,omitempty"`
	// The header's value; {} is where the secret goes. Default {}.
	Format string `yaml:"format,omitempty" json:"format,omitempty"`
	// A user name: the secret is then the password of a Basic credential.
	Basic string `yaml:"basic,omitempty" json:"basic,omitempty"`
	// HTTP methods in upper case. Default is all.
	Methods []string `yaml:"methods,omitempty" json:"methods,omitempty"`
	// Globs as in rules. Default is all.
	Paths []string `yaml:"paths,omitempty" json:"paths,omitempty"`
	// Lifetime of the binding. Default and most is secrets.max_ttl.
	TTL Duration `yaml:"ttl,omitempty" json:"ttl,omitempty"`
	// How many requests may carry it. Default is the server's.
	MaxUses int64 `yaml:"max_uses,omitempty" json:"max_uses,omitempty"`
	// Whether each use needs an approval.
	Approve bool `yaml:"approve,omitempty" json:"approve,omitempty"`
}

// Approvals says how people are asked.
type Approvals struct {
	// Votes that are required: 1 to 10. The largest of all layers counts.
	Quorum int `yaml:"quorum,omitempty" json:"quorum,omitempty"`
	// Lifetime of a request for approval: 1s to 168h. The shortest of all layers counts.
	Timeout Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	// The outcome of an approval request without a decision in time: deny.
	OnTimeout egress.Effect `yaml:"on_timeout,omitempty" json:"on_timeout,omitempty"`
}

// Redact holds the rules for redaction in responses, outputs and audit entries. Secrets in the
// responses of their own hosts are redacted in any case.
type Redact struct {
	// Sealed values in command output and in files that come out.
	Outputs *bool `yaml:"outputs,omitempty" json:"outputs,omitempty"`
	// Also text that looks like a well-known kind of token.
	Patterns *bool `yaml:"patterns,omitempty" json:"patterns,omitempty"`
}
