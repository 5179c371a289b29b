// Package config owns Crannog's settings: their defaults, the optional file,
// the environment, and where each value came from. Nothing else reads the
// environment for settings.
package config

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Config is every setting. To add one: a field here, a row in settings.go,
// and a check in validate.go; then run this package's tests with -update.
type Config struct {
	// Server.
	State    string // where the server keeps everything
	Listen   string // address of the HTTP server
	Insecure bool   // allow an address that others can reach, without TLS
	LogLevel string // debug, info, warn or error
	// What seals secrets, and the command lines that exec: may run.
	SecretsKey, SecretsExec string
	Mounts                  string
	// The webhook that is told of approval requests, and the secret that signs the
	// messages. Without an address, none are sent.
	ApprovalWebhook       string
	ApprovalWebhookSecret Secret
	MCP                   MCPEndpoint
	// Files with the policies above each sandbox's own; "" is none.
	OrganisationPolicy, ProjectPolicy string
	HostEtc                           string        // paths of /etc that are shown besides
	DefaultLevel                      string        // of a sandbox that names none; "" is standard
	DefaultEngine                     string        // of a sandbox that names none; "" is the first one
	MaxLive                           int64         // sandboxes alive at once
	StartsAtOnce                      int64         // sandboxes that start at once; zero adapts
	MaxQueued                         int64         // requests that wait for a start
	MaxQueueWait                      time.Duration // longest expected wait for a start
	MaxConnections                    int64         // connections of clients at once
	MaxConnectionsPerAddress          int64         // of them from one address
	ReservedDescriptors               int64         // descriptors that clients cannot take
	HeaderTimeout                     time.Duration // how long the head of a request may take
	IdleTimeout                       time.Duration // how long a client may send, or read, nothing
	MaxPaused                         int64         // sandboxes paused at once
	Images                            Images        // where images come from
	SnapshotBudget                    int64         // bytes of the disk for saved states; zero is a share of what is free
	SnapshotRetention                 time.Duration // how long snapshots are kept; zero is until they are removed
	DefaultTimeout                    time.Duration // lifetime of a sandbox that names none
	MaxTimeout                        time.Duration // longest lifetime that a key may request
	Retention                         time.Duration // how long records of ended sandboxes are kept
	Pool                              Pool          // memory of sandboxes that wait for callers
	PoolLanguages                     Languages     // what their code interpreter has loaded
	RecordAge                         time.Duration // how long entries of the record are kept
	RecordBytes                       int64         // most that the record may take of the disk
	RecordCheckpoints                 string        // where its checkpoints go besides
	RecordingBytes                    int64         // most that recordings of output may take of the disk

	// Client.
	URL string // server to talk to; "" is the local one
	Key Secret // API key for URL

	// What a sandbox gets that asks for nothing.
	Template       string
	Tools          string // version managers whose programs are shown; "" is none unless an agent runs
	MemoryBytes    int64
	MilliCPU       int64
	PIDs           int64
	DiskBytes      int64
	DiskInodes     int64
	ShmBytes       int64
	CommandTimeout time.Duration // zero: only the sandbox's end stops a command
	OutputBytes    int64

	origin map[string]string
}

// Images are the settings of OCI images.
type Images struct {
	Registries, Mirrors, Insecure string // lists apart by commas
	Budget                        int64  // bytes of the disk; zero is a share of what is free
}

// MCPEndpoint are the host names of /mcp, and who answers what agents on it ask.
type MCPEndpoint struct{ Hosts, Approver string }

// Secret is text that no log and no printout shows.
type Secret string

const redacted = "[redacted]"

// String hides the text.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString hides the text from %#v.
func (s Secret) GoString() string { return s.String() }

// Format hides the text from every other verb, %x and %q among them.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// LogValue hides the text from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the text from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Reveal returns the text, for the one place that sends it.
func (s Secret) Reveal() string { return string(s) }

// Env is what Load may see of the world.
type Env struct {
	Lookup func(name string) (string, bool)
	UID    int
	Home   string
}

// Host is the Env of this process.
func Host() Env {
	home, err := os.UserHomeDir()
	if err != nil {
		// Without a home there is no per-user file, and the state directory
		// must be named.
		home = ""
	}
	return Env{Lookup: os.LookupEnv, UID: os.Getuid(), Home: home}
}

// Default returns the settings of a fresh installation.
func Default(env Env) Config {
	return Config{
		State:       defaultState(env),
		Listen:      "127.0.0.1:7070",
		LogLevel:    "info",
		SecretsKey:  "file",
		MCP:         MCPEndpoint{Approver: "person"},
		Template:    "base",
		OutputBytes: 1 << 20,

		MaxConnections: 4096, MaxConnectionsPerAddress: 1024, ReservedDescriptors: 512, HeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute,
		MaxLive: 200, MaxQueued: 1000, MaxQueueWait: 5 * time.Minute, MaxPaused: 1000, DefaultTimeout: 5 * time.Minute, MaxTimeout: 24 * time.Hour, Retention: 24 * time.Hour,
		Pool: Pool{On: true}, PoolLanguages: Languages{"python", "javascript"}, RecordAge: 90 * 24 * time.Hour, RecordBytes: 4 << 30, RecordingBytes: 1 << 30,

		origin: map[string]string{},
	}
}

func defaultState(env Env) string {
	if env.UID == 0 {
		return "/var/lib/crannog"
	}
	if dir, ok := env.Lookup("XDG_DATA_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "crannog")
	}
	if env.Home == "" {
		return ""
	}
	return filepath.Join(env.Home, ".local", "share", "crannog")
}

// Socket is the Unix socket of the local server.
func (c Config) Socket() string { return filepath.Join(c.State, "crannog.sock") }
