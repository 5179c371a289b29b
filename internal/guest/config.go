// Package guest owns what runs inside a sandbox as PID 1: its boot
// configuration, its listeners and the private control service. The services
// themselves are in the packages below it.
package guest

import (
	"time"

	"github.com/crannog/crannog/internal/guest/probe"
)

// Config is what the daemon hands to the guest on standard input, as one JSON
// object, when the sandbox boots. It holds tokens, so it never travels in
// argv, environment or a file.
type Config struct {
	SandboxID  string `json:"sandbox_id"`
	TemplateID string `json:"template_id"`
	Hostname   string `json:"hostname"`

	// AccessToken opens the data plane (header X-Access-Token, file
	// signatures). ControlToken opens the control service (header
	// X-Crannog-Control), which the proxy never forwards.
	AccessToken  string `json:"access_token"`
	ControlToken string `json:"control_token"`

	// Env is set for every process, after PATH, HOME, USER and LOGNAME.
	Env         map[string]string `json:"env,omitempty"`
	DefaultUser string            `json:"default_user"`
	// DefaultDir is the working directory where a request names none, or ""
	// for the user's home.
	DefaultDir string `json:"default_dir,omitempty"`

	// NoRoot says that nothing is done as the superuser: the policy lists what
	// may be written, and root may write everything.
	NoRoot bool `json:"no_root,omitempty"`

	// CommandTimeout is the longest that a command may run that asks for no
	// time limit itself. Zero means that only the sandbox's end stops it.
	CommandTimeout time.Duration `json:"command_timeout,omitempty"`
	// EndAt is when the guest ends the sandbox by itself, in case no daemon
	// is there to do it. Zero means never.
	EndAt time.Time `json:"end_at,omitzero"`

	// Renew says that this configuration takes the place of an earlier one,
	// and what that means for what the sandbox is. "" is a first boot.
	Renew Renewal `json:"renew,omitempty"`
	// Preload names languages of the code interpreter whose first worker is
	// started, with its usual libraries loaded, before the guest is ready, or
	// ready again.
	Preload []string `json:"preload,omitempty"`
	// Archive says that a tar of changed files follows the configuration on
	// standard input, to be unpacked over the root before anything else runs.
	Archive bool `json:"archive,omitempty"`

	// Absent are paths that an empty file or directory stands for, in place of what
	// the policy hides. They are removed at a first boot, before an archive is
	// unpacked. One that holds something ends the boot.
	Absent []string `json:"absent,omitempty"`
	// Skip are paths that git is told not to look for, in the copy of an index
	// that the sandbox has: the policy hides them, and git must not take that for
	// their removal. It is done with Absent.
	Skip []Skip `json:"skip,omitempty"`

	// Tools are programs of the host's version managers.
	Tools Tools `json:"tools,omitzero"`
	// Files are written before anything else, over what the template has:
	// the name server of the link and the certificates that are trusted.
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
	// HostMemory is set where the kernel inside shows the memory of the host.
	HostMemory bool `json:"host_memory,omitempty"`
	// HostFiles is set where the guest sees the host's files and not the sandbox's own: it
	// makes none, and leaves their owners as they are.
	HostFiles bool `json:"host_files,omitempty"`
}

// Renewal is what happened to a sandbox before its guest got a new
// configuration. After each of them, streams from outside are cut, tokens,
// environment, files, end and limits are those of the new configuration, and
// the checks run again.
type Renewal string

const (
	// Resumed: the same sandbox continues after a pause. Nothing else changes.
	Resumed Renewal = "resumed"
	// RolledBack: the same sandbox continues from an earlier state of its own.
	// Random streams are new, so that what it draws twice differs.
	RolledBack Renewal = "rolled-back"
	// Copied: this is another sandbox now. Random streams, machine ID and boot
	// ID are new.
	Copied Renewal = "copied"
	// Claimed: the sandbox waited for its first user, who has come.
	Claimed Renewal = "claimed"
)

// File is a file of the superuser inside.
type File struct {
	Path string `json:"path"` // absolute and clean
	Mode uint32 `json:"mode"` // permission bits
	Data []byte `json:"data,omitempty"`
	// Link is where a symbolic link points to, instead of Data.
	Link string `json:"link,omitempty"`
	// Append puts Data behind what the template has there.
	Append bool `json:"append,omitempty"`
	// Around puts Data behind a part of what the template has there, if it
	// has the file at all.
	Around *Around `json:"around,omitempty"`
}

// Tools says where programs of the host's version managers are found.
type Tools struct {
	// Links are made at a first boot, before any program runs.
	Links []Link `json:"links,omitempty"`
	// Files belong into the default user's home, by their names there. They are written then too,
	// unless the home has one of the name.
	Files []File `json:"files,omitempty"`
	// Path are directories before the system's own in the PATH of every process.
	Path []string `json:"path,omitempty"`
}

// Link is a symbolic link inside.
type Link struct {
	At string `json:"at"` // absolute and clean
	To string `json:"to"`
}

// Skip lists changes that git does not look for.
type Skip struct {
	Index string   `json:"index"` // the index's path, absolute and clean
	Paths [][]byte `json:"paths"` // as in the index
}

// Around is a part of a file that stays, with something new before it.
type Around struct {
	Head []byte `json:"head,omitempty"`
	// The bytes From to To of the file stay. It must have Length of them.
	From   int `json:"from"`
	To     int `json:"to"`
	Length int `json:"length"`
}

// Control paths, on guestboot.Port. Each needs the header X-Crannog-Control; any
// other caller gets 404.
const (
	ControlHeader = "X-Crannog-Control"
	// PathReady answers 204 as soon as the services listen.
	PathReady = "/_crannog/ready"
	// PathAsked answers Asked.
	PathAsked = "/_crannog/asked"
	// PathUpdate takes a POST of Update and answers 204.
	PathUpdate = "/_crannog/update"
	// PathClaim takes a POST of a Config with Renew Claimed and answers 204
	// when its checks hold, else 409 with their message.
	PathClaim = "/_crannog/claim"
	// PathTree takes a POST of changes.TreeRequest and answers 200 with what
	// changes.ReadTree reads.
	PathTree = "/_crannog/tree"
	// PathPack takes a POST of changes.PackRequest and answers 200 with what
	// changes.Extract reads.
	PathPack = "/_crannog/pack"
	// PathCensus answers 200 with a census.Census.
	PathCensus = "/_crannog/census"
	// PathSignal takes a POST of census.Signal and answers 204, or 404 if there
	// is no such process.
	PathSignal = "/_crannog/signal"
)

// Asked are the names that programs in a sandbox without a network asked for.
type Asked struct {
	Names []string `json:"names"`
	// AgoUS is for each name how many microseconds ago it was asked for last.
	// A guest of an earlier version does not say.
	AgoUS []int64 `json:"ago_us,omitempty"`
}

// Update changes a running guest. Nil and zero fields stay as they are.
type Update struct {
	EndAt       *time.Time        `json:"end_at,omitempty"`
	AccessToken string            `json:"access_token,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
}
