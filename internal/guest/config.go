// Package guest owns what runs inside a sandbox as PID 1: its boot
// configuration, its listeners and the private control service. The services
// themselves are in the packages below it.
package guest

import (
	"time"

	"github.com/crannog/crannog/internal/guest/probe"
)

// Config is the configuration that the server sends to the guest on standard input, as one JSON
// object, when the sandbox boots. It holds tokens, so it is never passed in argv, the environment
// or a file.
type Config struct {
	SandboxID  string `json:"sandbox_id"`
	TemplateID string `json:"template_id"`
	Hostname   string `json:"hostname"`

	// AccessToken gives access to the data plane (header X-Access-Token, file signatures).
	// ControlToken gives access to the control service (header X-Crannog-Control), which the proxy
	// never forwards.
	AccessToken  string `json:"access_token"`
	ControlToken string `json:"control_token"`

	// Env is set for every process, after PATH, HOME, USER and LOGNAME.
	Env         map[string]string `json:"env,omitempty"`
	DefaultUser string            `json:"default_user"`
	// DefaultDir is the working directory if a request names none, or "" for the user's home.
	DefaultDir string `json:"default_dir,omitempty"`

	// NoRoot means that nothing is done as root: the policy lists what may be written, and root may
	// write everything.
	NoRoot bool `json:"no_root,omitempty"`
	// OneUser means that everything is done as the default user, because the engine gives the guest no
	// right to become another one.
	OneUser bool `json:"one_user,omitempty"`

	// CommandTimeout is the time limit of a command that requests none. Zero means that only the
	// sandbox's end stops it.
	CommandTimeout time.Duration `json:"command_timeout,omitempty"`
	// EndAt is when the guest ends the sandbox by itself, in case no server does. Zero means never.
	EndAt time.Time `json:"end_at,omitzero"`

	// Renew states that this configuration replaces an earlier one, and what happened to the
	// sandbox. "" is a first boot.
	Renew Renewal `json:"renew,omitempty"`
	// Preload names languages of the code interpreter. Before the guest is ready, or ready again,
	// it starts a worker of each and loads the usual libraries.
	Preload []string `json:"preload,omitempty"`
	// Archive states that a tar of changed files follows the configuration on standard input, to be
	// unpacked over the root before anything else runs.
	Archive bool `json:"archive,omitempty"`

	// Absent are paths at which an empty file or directory replaces what the policy hides. They are
	// removed at a first boot, before an archive is unpacked. If one is not empty, the boot fails.
	Absent []string `json:"absent,omitempty"`
	// Skip are paths that git must not look for, in the sandbox's copy of an index: the policy
	// hides them, and git must not take that for their removal. It is processed together with
	// Absent.
	Skip []Skip `json:"skip,omitempty"`

	// Tools are programs of the host's version managers.
	Tools Tools `json:"tools,omitzero"`
	// Files are written before anything else, over what the template has: the name server's
	// configuration and the trusted certificates.
	Files []File `json:"files,omitempty"`
	// Offline starts the name server of a sandbox without a network.
	Offline bool `json:"offline,omitempty"`
	// Checks must hold before the sandbox is ready.
	Checks probe.Checks `json:"checks,omitzero"`

	// Limits as the kernel outside enforces them, for /metrics.
	MemoryBytes int64 `json:"memory_bytes"`
	MilliCPU    int64 `json:"milli_cpu"`
	DiskBytes   int64 `json:"disk_bytes"`
	PIDs        int64 `json:"pids"`
	// HostMemory is set if the kernel inside shows the host's memory.
	HostMemory bool `json:"host_memory,omitempty"`
	// HostFiles is set if the guest sees the host's files and not the sandbox's own: it creates
	// none, and does not change their owners.
	HostFiles bool `json:"host_files,omitempty"`
}

// Renewal is what happened to a sandbox before its guest got a new configuration. After each,
// streams from outside are cut; tokens, environment, files, end and limits are those of the new
// configuration; and the checks run again.
type Renewal string

const (
	// Resumed: the same sandbox continues after a pause. Nothing else changes.
	Resumed Renewal = "resumed"
	// RolledBack: the same sandbox continues from an earlier state of its own. Random streams are
	// new, so that it does not draw the same numbers again.
	RolledBack Renewal = "rolled-back"
	// Copied: this is another sandbox now. Random streams, machine ID and boot
	// ID are new.
	Copied Renewal = "copied"
	// Claimed: the warm sandbox got its first user.
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
	// Around appends Data to a part of the template's file, if it exists.
	Around *Around `json:"around,omitempty"`
}

// Tools are the programs of the host's version managers.
type Tools struct {
	// Links are created at a first boot, before any program runs.
	Links []Link `json:"links,omitempty"`
	// Files belong into the default user's home, by their names there. They are written at a first
	// boot too, unless the home has one of the name.
	Files []File `json:"files,omitempty"`
	// Path are directories that precede the system's in the PATH of every process.
	Path []string `json:"path,omitempty"`
}

// Link is a symbolic link inside.
type Link struct {
	At string `json:"at"` // absolute and clean
	To string `json:"to"`
}

// Skip lists the paths that git must not look for in one index.
type Skip struct {
	Index string   `json:"index"` // the index's path, absolute and clean
	Paths [][]byte `json:"paths"` // as in the index
}

// Around is a part of a file that stays, with a new beginning.
type Around struct {
	Head []byte `json:"head,omitempty"`
	// The bytes From to To of the file stay. It must have Length of them.
	From   int `json:"from"`
	To     int `json:"to"`
	Length int `json:"length"`
}

// Control paths, on guestboot.Port. Each needs the header X-Crannog-Control; any other caller gets
// 404.
const (
	ControlHeader = "X-Crannog-Control"
	// PathReady answers 204 as soon as the services listen.
	PathReady = "/_crannog/ready"
	// PathAsked answers with Asked.
	PathAsked = "/_crannog/asked"
	// PathUpdate accepts a POST of Update and answers 204.
	PathUpdate = "/_crannog/update"
	// PathClaim accepts a POST of a Config with Renew Claimed and answers 204 when its checks hold,
	// else 409 with their message.
	PathClaim = "/_crannog/claim"
	// PathTree accepts a POST of changeset.TreeRequest and answers 200 with what changeset.ReadTree
	// reads.
	PathTree = "/_crannog/tree"
	// PathPack accepts a POST of changeset.PackRequest and answers 200 with what changeset.Extract
	// reads.
	PathPack = "/_crannog/pack"
	// PathCensus answers 200 with a census.Census.
	PathCensus = "/_crannog/census"
	// PathSignal accepts a POST of census.Signal and answers 204, or 404 if there is no such
	// process.
	PathSignal = "/_crannog/signal"
)

// Asked lists the names that programs in a sandbox without a network looked up.
type Asked struct {
	Names []string `json:"names"`
	// AgoUS has for each name how many microseconds ago it was last looked up. A guest of an
	// earlier version does not send it.
	AgoUS []int64 `json:"ago_us,omitempty"`
}

// Update changes a running guest. Nil and zero fields change nothing.
type Update struct {
	EndAt       *time.Time        `json:"end_at,omitempty"`
	AccessToken string            `json:"access_token,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
}
