// Package guest owns the program that runs as PID 1 inside a sandbox: its boot configuration, its
// listeners and the private control service. The packages below it own the public services.
package guest

import (
	"time"

	"github.com/crannog/crannog/internal/guest/probe"
)

// Config is the configuration that the server sends to the guest on standard input, as one JSON
// object, when the sandbox boots. It contains tokens, so it is never passed in argv, in the
// environment or in a file.
type Config struct {
	SandboxID  string `json:"sandbox_id"`
	TemplateID string `json:"template_id"`
	Hostname   string `json:"hostname"`

	// AccessToken gives access to the data plane (header X-Access-Token, file signatures).
	// ControlToken gives access to the control service (header X-Crannog-Control). The proxy never
	// forwards that header.
	AccessToken  string `json:"access_token"`
	ControlToken string `json:"control_token"`

	// Env is set for every process, after PATH, HOME, USER and LOGNAME.
	Env         map[string]string `json:"env,omitempty"`
	DefaultUser string            `json:"default_user"`
	// DefaultDir is the working directory of requests that name none. Empty means the user's home.
	DefaultDir string `json:"default_dir,omitempty"`

	// NoRoot means that no request may run as root: the policy restricts which paths are writable,
	// and root could write everywhere.
	NoRoot bool `json:"no_root,omitempty"`
	// OneUser means that every request runs as the default user, because the engine does not let
	// the guest change its user.
	OneUser bool `json:"one_user,omitempty"`

	// CommandTimeout is the time limit of a command whose request has none. Zero means no limit.
	CommandTimeout time.Duration `json:"command_timeout,omitempty"`
	// EndAt is when the guest ends the sandbox by itself if the server does not. Zero means never.
	EndAt time.Time `json:"end_at,omitzero"`

	// Renew is set if this configuration replaces an earlier one. It names what happened to the
	// sandbox in between. "" means a first boot.
	Renew Renewal `json:"renew,omitempty"`
	// Preload lists languages of the code interpreter. The guest starts a worker of each and loads
	// the usual libraries before it reports that it is ready.
	Preload []string `json:"preload,omitempty"`
	// Archive means that a tar of changed files follows the configuration on standard input. The
	// guest unpacks it over the root before it runs anything else.
	Archive bool `json:"archive,omitempty"`

	// Absent lists the paths at which an empty file or directory replaces what the policy hides.
	// The guest removes these placeholders at a first boot, before it unpacks an archive. If a
	// placeholder is not empty, the boot fails.
	Absent []string `json:"absent,omitempty"`
	// Skip lists the paths that git must ignore in the sandbox's copy of an index. The policy hides
	// these paths, and git would otherwise report them as deleted. Skip is processed together with
	// Absent.
	Skip []Skip `json:"skip,omitempty"`

	// Tools are programs of the host's version managers (such as nvm or pyenv).
	Tools Tools `json:"tools,omitzero"`
	// Files are written before anything else and replace files of the template: the resolver's
	// configuration and the trusted certificates.
	Files []File `json:"files,omitempty"`
	// Offline starts the DNS server of a sandbox without a network.
	Offline bool `json:"offline,omitempty"`
	// Checks must pass before the sandbox is ready.
	Checks probe.Checks `json:"checks,omitzero"`

	// Limits as the kernel outside the sandbox enforces them, for /metrics.
	MemoryBytes int64 `json:"memory_bytes"`
	MilliCPU    int64 `json:"milli_cpu"`
	DiskBytes   int64 `json:"disk_bytes"`
	PIDs        int64 `json:"pids"`
	// HostMemory is set if the kernel inside shows the host's memory.
	HostMemory bool `json:"host_memory,omitempty"`
	// HostFiles is set if the guest sees the host's files instead of its own copy. The guest then
	// creates no files and changes no owners.
	HostFiles bool `json:"host_files,omitempty"`
}

// Renewal names what happened to a sandbox before its guest got a new configuration. The guest then
// closes connections from outside and runs the checks again. It replaces tokens, environment,
// files, end time and limits by those of the new configuration.
type Renewal string

const (
	// Resumed means that the same sandbox continues after a pause. Nothing else changes.
	Resumed Renewal = "resumed"
	// RolledBack means that the sandbox continues from an earlier checkpoint of its own. The random
	// generators are reseeded, so that it does not produce the same numbers again.
	RolledBack Renewal = "rolled-back"
	// Copied means that this is now another sandbox. Random seeds, machine ID and boot ID are
	// replaced.
	Copied Renewal = "copied"
	// Claimed means that a warm sandbox got its first user.
	Claimed Renewal = "claimed"
)

// File is a file that belongs to root inside.
type File struct {
	Path string `json:"path"` // absolute and clean
	Mode uint32 `json:"mode"` // permission bits
	Data []byte `json:"data,omitempty"`
	// Link is the target of a symbolic link, instead of Data.
	Link string `json:"link,omitempty"`
	// Append appends Data to the template's file.
	Append bool `json:"append,omitempty"`
	// Around preserves a part of the template's file between Around.Head and Data, if the file
	// exists.
	Around *Around `json:"around,omitempty"`
}

// Tools are the programs of the host's version managers.
type Tools struct {
	// Links are created at a first boot, before any program runs.
	Links []Link `json:"links,omitempty"`
	// Files are written into the default user's home at a first boot, unless a file of the same
	// name exists.
	Files []File `json:"files,omitempty"`
	// Path lists directories that precede the system's in the PATH of every process.
	Path []string `json:"path,omitempty"`
}

// Link is a symbolic link inside.
type Link struct {
	At string `json:"at"` // absolute and clean
	To string `json:"to"`
}

// Skip lists the paths that git must ignore in one index.
type Skip struct {
	Index string   `json:"index"` // the index's path, absolute and clean
	Paths [][]byte `json:"paths"` // as in the index
}

// Around selects the part of a file that is preserved after a new beginning.
type Around struct {
	Head []byte `json:"head,omitempty"`
	// The bytes from From to To are preserved. The file must have Length bytes.
	From   int `json:"from"`
	To     int `json:"to"`
	Length int `json:"length"`
}

// Control paths, on guestboot.Port. Each request needs the header X-Crannog-Control, otherwise the
// answer is 404.
const (
	ControlHeader = "X-Crannog-Control"
	// PathReady answers 204 as soon as the services listen.
	PathReady = "/_crannog/ready"
	// PathLookups answers with Lookups.
	PathLookups = "/_crannog/asked"
	// PathUpdate accepts a POST of Update and answers 204.
	PathUpdate = "/_crannog/update"
	// PathClaim accepts a POST of a Config with Renew set to Claimed. It answers 204 if the checks
	// pass, otherwise 409 with the message of the failed check.
	PathClaim = "/_crannog/claim"
	// PathTree accepts a POST of changeset.TreeRequest and answers 200 with data for
	// changeset.ReadTree.
	PathTree = "/_crannog/tree"
	// PathPack accepts a POST of changeset.PackRequest and answers 200 with data for
	// changeset.Extract.
	PathPack = "/_crannog/pack"
	// PathCensus answers 200 with a census.Census.
	PathCensus = "/_crannog/census"
	// PathSignal accepts a POST of census.Signal and answers 204, or 404 if there is no such
	// process.
	PathSignal = "/_crannog/signal"
)

// Lookups lists the names that programs in a sandbox without a network tried to resolve.
type Lookups struct {
	Names []string `json:"names"`
	// AgoUS contains, for each name, the time since its last lookup in microseconds. Guests of
	// earlier versions do not send it.
	AgoUS []int64 `json:"ago_us,omitempty"`
}

// Update changes the configuration of a running guest. Nil and zero fields change nothing.
type Update struct {
	EndAt       *time.Time        `json:"end_at,omitempty"`
	AccessToken string            `json:"access_token,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
}
