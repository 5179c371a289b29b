// Package archtest owns the shape of the repository as a test: which packages
// exist, in which order, and what every file and promise must satisfy.
package archtest

// Row is a group of packages that may import only packages of rows above it
// in Layers, and those of its own row that stand before them.
type Row struct {
	Name     string
	Packages []string // below the module's path, lowest first
}

// Layers lists every package, lowest row first, so that a cycle or an import
// upwards cannot be written down.
var Layers = []Row{
	{"foundations", []string{
		"api", "internal/fault", "internal/fault/httpstatus", "internal/sandboxid", "internal/config", "internal/reexec", "internal/idle", "internal/interrupt", "internal/bulk", "internal/beat", "internal/host/durable", "internal/host/text", "internal/carried", "internal/hosttest", "internal/perfcount", "internal/prefault", "internal/calm", "internal/programtest", "internal/signature", "internal/connlimit", "internal/diskroom", "internal/copytree", "internal/hostfiles", "internal/relay",
		"internal/gen", "internal/gen/processpb", "internal/gen/processpb/processpbconnect",
		"internal/gen/filesystempb", "internal/gen/filesystempb/filesystempbconnect",
		"internal/utf8text", "internal/guestwire", "internal/process", "internal/witness", "internal/cast", "internal/toolfiles", "internal/hosttools", "internal/changes", "internal/gitrepo/varint", "internal/gitrepo/index", "internal/gitrepo/objects", "internal/gitrepo/pointer", "internal/provenance",
	}},
	{"causeway", []string{
		"internal/causeway", "internal/causeway/names", "internal/causeway/policy", "internal/causeway/certs", "internal/causeway/git", "internal/causeway/publish",
		"internal/causeway/redact", "internal/causeway/secrets", "internal/causeway/approval", "internal/causeway/wire", "internal/causeway/wire/wiretest", "internal/causeway/proxy",
		"internal/causeway/confine", "internal/causeway/control",
	}},
	{"inside the box", []string{
		"internal/guest/codec", "internal/guest/keepalive", "internal/guest/metadata", "internal/guest/census", "internal/guest/metrics", "internal/guest/reap", "internal/guest/lineage", "internal/guest/spawn",
		"internal/guest/identity", "internal/guest/give", "internal/guest/unpack", "internal/guest/offline", "internal/guest/probe", "internal/guest/watch", "internal/guest/process", "internal/guest/filesystem",
		"internal/guest/files", "internal/guest/tree", "internal/guest/interpreter", "internal/guest/search", "internal/guest",
		"internal/guestbin", "internal/runtimebin",
	}},
	{"engines", []string{
		"internal/engine", "internal/guest/guestmain", "internal/engine/cgroup", "internal/engine/ocispec",
		"internal/engine/gvisor/filters", "internal/engine/gvisor/filters/generate", "internal/engine/gvisor/first", "internal/engine/gvisor/early", "internal/engine/gvisor/clock", "internal/engine/gvisor/trim", "internal/engine/gvisor/numbers", "internal/engine/gvisor/owners", "internal/engine/gvisor/watch", "internal/engine/gvisor",
		"internal/engine/fake", "internal/engine/enginetest",
	}},
	{"rules", []string{"internal/record", "internal/record/recordtest", "internal/netlog", "internal/spool", "internal/recording", "internal/workspace", "internal/kept", "internal/key", "internal/snapshot", "internal/sandbox/demand", "internal/sandbox/admission", "internal/sandbox/fact", "internal/sandbox", "internal/sandbox/sandboxtest", "internal/template", "internal/console/session", "internal/store", "internal/agents", "internal/registration"}},
	{"doors", []string{"internal/masking", "internal/tap", "internal/refusal", "internal/e2bapi", "internal/dataplane", "internal/httpapi", "internal/console", "internal/console/live", "internal/console/inside"}},
	{"assembly", []string{"internal/daemon", "internal/standard", "", "internal/mcpserver", "internal/cli/first", "internal/cli"}},
	{"programs", []string{"cmd/crannog-guest", "cmd/crannog-runtime", "cmd/crannog", "bench", "tests/mcp/drive", "tests/mcp/fixture", "tests/console/fleet", "tests/speed", "tests/timing"}},
	{"guards", []string{"internal/servetest", "internal/archtest"}},
}
