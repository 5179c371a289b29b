// Package archtest owns tests of the repository's structure: which folders exist, in which order,
// and the rules for all files.
package archtest

// Folder is a folder of packages. It includes all folders below it that have no entry of their own.
type Folder struct {
	Path string // below the module's path; "" is the module's own package
	Owns string
}

// Folders lists all folders, the highest layer first. A package imports only packages of its own
// folder and of later ones in this list, so the list shows the direction of dependencies. Within a
// folder, Go itself refuses a cycle.
var Folders = []Folder{
	{"tests", "tests through the real binary and real clients"},
	{"bench", "the benchmarks for all figures in the documents"},
	{"cmd", "the programs: crannog, the guest, the program for gVisor"},
	{"internal/testkit/archtest", "the rules of this repository as tests"},
	{"internal/testkit/servetest", "a real server for tests"},
	{"internal/cli", "the command line: flags, help, rendering, exit codes"},
	{"internal/drill", "attacks on the sandboxes of one host, with their controls"},
	{"internal/enginebench", "the comparison of the engines of one host"},
	{"internal/mcpserver", "the MCP server, a client of the Go API"},
	{"internal/sshserver", "the SSH endpoint of a sandbox, and its forwarded ports"},
	{"", "the Go client and embedding API"},
	{"internal/server", "assembly: opens state, makes the engine, connects the frontends"},
	{"internal/store", "the database behind the ports of sandboxes, keys, secrets, approvals and sessions"},
	{"internal/frontend", "the HTTP interfaces: v1, e2b, console, ingress"},
	{"internal/integration", "agent programs and MCP clients on this machine"},
	{"wasihttp", "the HTTP client for WebAssembly modules in sandboxes"},
	{"internal/devcontainer", "development containers: devcontainer.json and its features"},
	{"internal/build", "builds of images from Dockerfiles"},
	{"internal/image", "the images and templates that sandboxes start from"},
	{"internal/sandbox", "the life cycle of sandboxes"},
	{"internal/engine", "the engine contract and the engines"},
	{"internal/state", "files on disk: snapshots, workspaces, retained changes, keys"},
	{"internal/audit", "the audit log, its sources, session recordings, provenance"},
	{"internal/egress", "the egress gateway: policy, proxy, secrets, approvals"},
	{"internal/packages", "the package cache: protocols of registries, stored files, verification"},
	{"internal/guest", "the program in a sandbox that runs commands, and its client"},
	{"internal/filetree", "trees of files: copying, comparing, git repositories, known tool files"},
	{"internal/host", "resources of the host: memory, disk, timers, embedded programs"},
	{"internal/telemetry", "traces, metrics, and logs with the IDs of traces"},
	{"internal/config", "settings"},
	{"internal/ids", "identifiers and tokens, and the format of a sandbox's ID"},
	{"internal/fault", "error kinds that every interface shares"},
	{"internal/testkit", "what tests need of the host"},
	{"api", "the wire types of /v1"},
}
