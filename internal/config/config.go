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
	State         string // state directory
	LogLevel      string // debug, info, warn or error
	HTTP          HTTP
	Secrets       SecretStore
	HostFiles     HostFiles
	Webhook       Webhook
	MCP           MCPEndpoint
	Policies      Policies
	DefaultEngine string // default engine of a sandbox; "" means the first one
	Capacity      Capacity
	Lifetime      Lifetime
	Images        Images
	Snapshots     Snapshots
	Pool          Pool      // memory for warm sandboxes
	PoolLanguages Languages // languages that warm sandboxes have loaded
	Audit         Audit

	Client  Client
	Sandbox Sandbox

	origin map[string]string
}

// HTTP are the settings of the HTTP server and its connections.
type HTTP struct {
	Listen              string        // address
	Insecure            bool          // allow an address that other machines can reach, without TLS
	MaxConnections      int64         // connections of clients at once
	MaxPerAddress       int64         // connections from one address
	ReservedDescriptors int64         // descriptors that clients cannot use
	HeaderTimeout       time.Duration // time limit for the head of a request
	IdleTimeout         time.Duration // time that a client may be idle, or not read an answer
}

// SecretStore has the key that encrypts secrets, and the command lines that exec: may run.
type SecretStore struct{ Key, Exec string }

// HostFiles are the host's files that sandboxes may see.
type HostFiles struct {
	Mounts string // directories that callers with a key may mount by name
	Etc    string // further paths of /etc
}

// Webhook receives approval requests. The secret signs its messages. Without an address, none are
// sent.
type Webhook struct {
	URL    string
	Secret Secret
}

// Policies are files with the policies above each sandbox's own, "" meaning none, and the level of a
// sandbox that names none, "" meaning standard.
type Policies struct{ Organisation, Project, Level string }

// Capacity bounds how many sandboxes there are at once, and how they wait for each other.
type Capacity struct {
	Live         int64         // sandboxes alive
	Paused       int64         // paused sandboxes
	StartsAtOnce int64         // sandboxes that start at the same time; zero adapts
	Queued       int64         // requests that may wait for a start
	QueueWait    time.Duration // longest expected wait for a start
}

// Lifetime bounds how long a sandbox and its traces exist.
type Lifetime struct {
	Default   time.Duration // of a sandbox
	Max       time.Duration // the longest that a key may request
	Retention time.Duration // how long events and flows of ended sandboxes are kept
}

// Images are the settings of OCI images.
type Images struct {
	Registries, Mirrors, Insecure string // lists separated by commas
	Budget                        int64  // disk space; zero means a share of the free space
}

// Snapshots are the settings of saved states.
type Snapshots struct {
	Budget    int64         // disk space; zero means a share of the free space
	Retention time.Duration // how long snapshots are kept; zero means until they are removed
}

// Audit are the settings of the audit log and of session recordings.
type Audit struct {
	Age            time.Duration // how long entries are kept
	Bytes          int64         // maximum size of the audit log
	TreeHeads      string        // further destinations of signed tree heads
	RecordingBytes int64         // maximum size of all session recordings
}

// MCPEndpoint has the host names of /mcp, and who decides requests of its agents.
type MCPEndpoint struct{ Hosts, Approver string }

// Client are the settings of clients.
type Client struct {
	URL string // server to connect to; "" means the local one
	Key Secret // API key for URL
}

// Sandbox has the defaults for new sandboxes.
type Sandbox struct {
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
}

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
		State:    defaultState(env),
		LogLevel: "info",
		HTTP: HTTP{
			Listen: "127.0.0.1:7070", MaxConnections: 4096, MaxPerAddress: 1024, ReservedDescriptors: 512,
			HeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute,
		},
		Secrets:       SecretStore{Key: "file"},
		MCP:           MCPEndpoint{Approver: "person"},
		Capacity:      Capacity{Live: 200, Paused: 1000, Queued: 1000, QueueWait: 5 * time.Minute},
		Lifetime:      Lifetime{Default: 5 * time.Minute, Max: 24 * time.Hour, Retention: 24 * time.Hour},
		Pool:          Pool{On: true},
		PoolLanguages: Languages{"python", "javascript"},
		Audit:         Audit{Age: 90 * 24 * time.Hour, Bytes: 4 << 30, RecordingBytes: 1 << 30},
		Sandbox:       Sandbox{Template: "base", OutputBytes: 1 << 20},

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
