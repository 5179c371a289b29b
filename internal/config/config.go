// Package config owns Crannog's settings: their defaults, the optional file, the environment, and
// where each value came from. No other package reads settings from the environment.
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
	// Settings of the server.
	State    string // state directory
	Listen   string // address of the HTTP server
	Insecure bool   // allow an address that other machines can reach, without TLS
	LogLevel string // debug, info, warn or error
	// The key that encrypts secrets, and the command lines that exec: may run.
	SecretsKey, SecretsExec string
	Mounts                  string
	// The webhook that receives approval requests, and the secret that signs its messages. Without
	// an address, none are sent.
	ApprovalWebhook       string
	ApprovalWebhookSecret Secret
	MCP                   MCPEndpoint
	// Files with the policies above each sandbox's own; "" means none.
	OrganisationPolicy, ProjectPolicy string
	HostEtc                           string        // further paths of /etc that sandboxes see
	DefaultLevel                      string        // default level of a sandbox; "" means standard
	Engines                           Engines       // what can isolate sandboxes
	MaxLive                           int64         // sandboxes alive at once
	StartsAtOnce                      int64         // sandboxes that start at the same time; zero adapts
	MaxQueued                         int64         // requests that may wait for a start
	MaxQueueWait                      time.Duration // longest expected wait for a start
	MaxConnections                    int64         // connections of clients at once
	MaxConnectionsPerAddress          int64         // connections from one address
	ReservedDescriptors               int64         // descriptors that clients cannot use
	HeaderTimeout                     time.Duration // time limit for the head of a request
	IdleTimeout                       time.Duration // time that a client may be idle, or not read an answer
	MaxPaused                         int64         // paused sandboxes at once
	Images                            Images        // sources of images
	SnapshotBudget                    int64         // disk space for saved states; zero means a share of the free space
	SnapshotRetention                 time.Duration // how long snapshots are kept; zero means until they are removed
	DefaultTimeout                    time.Duration // default lifetime of a sandbox
	MaxTimeout                        time.Duration // longest lifetime that a key may request
	Retention                         time.Duration // how long events and flows of ended sandboxes are kept
	Pool                              Pool          // memory for warm sandboxes
	PoolLanguages                     Languages     // languages that warm sandboxes have loaded
	RecordAge                         time.Duration // how long audit entries are kept
	RecordBytes                       int64         // maximum size of the audit log
	RecordCheckpoints                 string        // further destinations of signed tree heads
	RecordingBytes                    int64         // maximum size of all session recordings

	// Settings of clients.
	URL string // server to connect to; "" means the local one
	Key Secret // API key for URL

	// Defaults for new sandboxes.
	Template       string
	Tools          string // version managers whose programs are shown; "" means none, except for agents
	MemoryBytes    int64
	MilliCPU       int64
	PIDs           int64
	DiskBytes      int64
	DiskInodes     int64
	ShmBytes       int64
	CommandTimeout time.Duration // zero: a command runs until its sandbox ends
	OutputBytes    int64

	origin map[string]string
}

// Images are the settings of OCI images.
type Images struct {
	Registries, Mirrors, Insecure string // lists separated by commas
	Budget                        int64  // disk space; zero means a share of the free space
}

// Engines are the settings of what isolates sandboxes.
type Engines struct {
	Default                   string // the engine of a sandbox that names none; "" means the first one
	DockerHost, DockerRuntime string // the Docker Engine that can run sandboxes
	MicroVMKernel             string // the kernel of virtual machines
	MicroVMEmulation          string // "", or InsecureForTests
}

// MCPEndpoint has the host names of /mcp, and who decides requests of its agents.
type MCPEndpoint struct{ Hosts, Approver string }

// Secret is text that does not appear in logs or printouts.
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

// Format hides the text from all other verbs, such as %x and %q.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// LogValue hides the text from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the text from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Reveal returns the text. Only the code that sends it calls Reveal.
func (s Secret) Reveal() string { return string(s) }

// Env is what Load reads of its environment.
type Env struct {
	Lookup func(name string) (string, bool)
	UID    int
	Home   string
}

// Host returns the Env of this process.
func Host() Env {
	home, err := os.UserHomeDir()
	if err != nil {
		// Without a home directory there is no per-user file, and the state directory must be
		// given.
		home = ""
	}
	return Env{Lookup: os.LookupEnv, UID: os.Getuid(), Home: home}
}

// Default returns the settings without a file or variables.
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

// Socket returns the path of the local server's Unix socket.
func (c Config) Socket() string { return filepath.Join(c.State, "crannog.sock") }
