// Package config owns Crannog's settings: their defaults, the optional file, the environment, and
// the origin of each value. No other package reads settings from the environment.
package config

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Config is every setting. To add one: a field in its group (sections.go), a row in settings.go,
// and a check in validate.go; then run this package's tests with -update. The groups exist in the
// program only: in the file and the environment, a setting has one name without a section.
type Config struct {
	// Settings of the server.
	State         string // state directory
	Telemetry     Telemetry
	HTTP          HTTP
	Secrets       SecretStore
	HostFiles     HostFiles
	Webhook       Webhook
	MCP           MCPEndpoint
	Policies      Policies
	Engines       Engines // what can isolate sandboxes
	Capacity      Capacity
	Lifetime      Lifetime
	Images        Images // sources of images
	Disk          Disk
	Snapshots     Snapshots
	Pool          Pool      // memory for warm sandboxes
	PoolLanguages Languages // languages that warm sandboxes have loaded
	Audit         Audit

	Client  Client
	Sandbox SandboxDefaults

	origin map[string]string
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

// Env is the environment that Load reads.
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
		// configured.
		home = ""
	}
	return Env{Lookup: os.LookupEnv, UID: os.Getuid(), Home: home}
}

// Default returns the settings without a file or variables.
func Default(env Env) Config {
	return Config{
		State:     defaultState(env),
		Telemetry: Telemetry{LogLevel: "info", LogFormat: "text"},
		HTTP: HTTP{
			Listen: "127.0.0.1:7070", MaxConnections: 4096, MaxPerAddress: 1024,
			ReservedDescriptors: 512, HeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute,
		},
		Secrets:       SecretStore{Key: "file"},
		MCP:           MCPEndpoint{Approver: "person"},
		Capacity:      Capacity{Live: 200, Paused: 1000, Queued: 1000, QueueWait: 5 * time.Minute},
		Lifetime:      Lifetime{Default: 5 * time.Minute, Max: 24 * time.Hour, Retention: 24 * time.Hour},
		Pool:          Pool{On: true},
		PoolLanguages: Languages{"python", "javascript"},
		Audit:         Audit{Age: 90 * 24 * time.Hour, Bytes: 4 << 30, RecordingBytes: 1 << 30},
		Sandbox:       SandboxDefaults{Template: "base", OutputBytes: 1 << 20},

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
