package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

var logLevels = []string{"debug", "info", "warn", "error"}

// Validate reports every invalid setting, before a socket or file is opened.
func (c Config) Validate() error {
	return errors.Join(c.checkState(), c.checkListen(), c.checkLogLevel(), c.checkTelemetry(), c.checkURL(), c.checkLimits(), c.checkWebhook(), c.checkMCP(), c.checkPolicies(), c.checkDocker(), c.checkMicroVM(), c.checkAttachment(), c.checkHostEtc(), c.checkKeyrings(), c.checkScanner(), c.checkCapacity(), c.checkConnections(), c.checkAudit())
}

func (c Config) checkState() error {
	if !filepath.IsAbs(c.State) {
		return fmt.Errorf("state: %q is not an absolute path, such as /var/lib/crannog", c.State)
	}
	// Crannog's processes exchange the path as JSON, which must be UTF-8.
	if !utf8.ValidString(c.State) {
		return fmt.Errorf("state: %q is not UTF-8 text", c.State)
	}
	// The kernel rejects longer socket paths.
	if n := len(c.Socket()); n > 107 {
		return fmt.Errorf("state: the path is too long for a socket below it: %d bytes, at most 107", n)
	}
	return nil
}

// checkListen rejects an address that other machines can reach, unless the user allowed it
// explicitly. There is no TLS, so a key could be read on the network.
func (c Config) checkListen() error {
	host, port, err := net.SplitHostPort(c.HTTP.Listen)
	if err != nil {
		return fmt.Errorf("listen: %q is not host:port, such as 127.0.0.1:7070", c.HTTP.Listen)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("listen: %q is not a port number", port)
	}
	if c.HTTP.Insecure || Loopback(host) {
		return nil
	}
	return fmt.Errorf("listen: %q can be reached by other machines and there is no TLS; use 127.0.0.1, or add --insecure behind a proxy that has it", c.HTTP.Listen)
}

// Loopback reports whether the host is reachable only from this machine.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

func (c Config) checkLogLevel() error {
	if slices.Contains(logLevels, c.Telemetry.LogLevel) {
		return nil
	}
	return fmt.Errorf("log_level: %q is not one of %v", c.Telemetry.LogLevel, logLevels)
}

var logFormats = []string{"text", "json"}

// checkTelemetry does not quote the endpoint, which may contain a password.
func (c Config) checkTelemetry() error {
	var problems []error
	if !slices.Contains(logFormats, c.Telemetry.LogFormat) {
		problems = append(problems, fmt.Errorf("log_format: %q is not one of %v", c.Telemetry.LogFormat, logFormats))
	}
	if c.Telemetry.Endpoint != "" {
		u, err := url.Parse(c.Telemetry.Endpoint)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Scheme != "http" && u.Scheme != "https" {
			problems = append(problems, errors.New("otlp_endpoint: it is not a URL such as http://localhost:4318; a key belongs in OTEL_EXPORTER_OTLP_HEADERS"))
		}
	}
	return errors.Join(problems...)
}

func (c Config) checkURL() error {
	if c.Client.URL == "" {
		return nil
	}
	u, err := url.Parse(c.Client.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("url: %q is not a URL such as http://127.0.0.1:7070", c.Client.URL)
	}
	return nil
}

// maxLive exceeds the number of sandboxes that any machine can run.
const maxLive = 100_000

// minBudget is several times the disk space of one idle sandbox.
const minBudget = 64 << 20

// minWebhookSecret is the minimum length, so that the secret cannot be guessed from signed calls.
const minWebhookSecret = 16

// checkWebhook rejects unencrypted addresses of other machines, and calls without a signature,
// which a receiver could not distinguish from forged ones.
func (c Config) checkWebhook() error {
	if c.Webhook.URL == "" {
		return nil
	}
	u, err := url.Parse(c.Webhook.URL)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !Loopback(u.Hostname())) {
		return fmt.Errorf("approval_webhook: %q is not a URL such as https://hooks.example.com/crannog; http is for this machine only", c.Webhook.URL)
	}
	if len(c.Webhook.Secret) < minWebhookSecret {
		return fmt.Errorf("approval_webhook_secret: it signs the calls and has at least %d characters, such as those of: openssl rand -hex 20", minWebhookSecret)
	}
	return nil
}

// checkPolicies rejects a relative path, because it would depend on the current directory, and
// another policy or none would be in force.
func (c Config) checkPolicies() error {
	var problems []error
	for _, f := range []struct{ name, path string }{{"organisation_policy", c.Policies.Organisation}, {"project_policy", c.Policies.Project}} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			problems = append(problems, fmt.Errorf("%s: %q is not an absolute path, such as /etc/crannog/policy.yaml", f.name, f.path))
		}
	}
	return errors.Join(problems...)
}

// InsecureForTests is the value of microvm_emulation that permits machines without KVM.
const InsecureForTests = "insecure-for-tests"

// ProxyAttachment is the value of network_attachment that gives sandboxes no network interface.
const ProxyAttachment = "proxy"

func (c Config) checkAttachment() error {
	if v := c.Engines.Attachment; v != "" && v != ProxyAttachment {
		return fmt.Errorf("network_attachment: %q is not %s; leave it empty to connect sandboxes by a network interface", v, ProxyAttachment)
	}
	return nil
}

// checkMicroVM rejects every other value. A machine without KVM is not a security boundary, so a
// short or accidental value must not enable it.
func (c Config) checkMicroVM() error {
	if v := c.Engines.MicroVMEmulation; v != "" && v != InsecureForTests {
		return fmt.Errorf("microvm_emulation: %q is not %s, and only that permits machines without KVM", v, InsecureForTests)
	}
	return nil
}

// checkDocker rejects addresses that the Docker client would misinterpret or that it does not
// support.
func (c Config) checkDocker() error {
	if c.Engines.DockerHost == "" {
		return nil
	}
	scheme, rest, _ := strings.Cut(c.Engines.DockerHost, "://")
	switch {
	case scheme == "ssh":
		return fmt.Errorf("docker_host: ssh is not supported; forward the socket: ssh -NL /run/user/1000/docker.sock:/var/run/docker.sock HOST, and name unix:///run/user/1000/docker.sock")
	case scheme == "unix" && filepath.IsAbs(rest), (scheme == "tcp" || scheme == "http" || scheme == "https") && rest != "":
		return nil
	}
	return fmt.Errorf("docker_host: %q is not an address such as unix:///run/docker.sock or tcp://127.0.0.1:2375", c.Engines.DockerHost)
}

// HostEtcPaths returns the paths in host_etc.
func (c Config) HostEtcPaths() []string {
	return strings.FieldsFunc(c.HostFiles.Etc, func(r rune) bool { return r == ',' || r == ' ' })
}

// checkHostEtc rejects paths outside of /etc. Package rootfs rejects those that sandboxes must not
// see.
func (c Config) checkHostEtc() error {
	var problems []error
	for _, name := range c.HostEtcPaths() {
		if !strings.HasPrefix(name, "/etc/") || filepath.Clean(name) != name {
			problems = append(problems, fmt.Errorf("host_etc: %q is not a path below /etc, such as /etc/nginx", name))
		}
	}
	return errors.Join(problems...)
}

// PackageKeyrings returns the paths in package_keyrings.
func (c Config) PackageKeyrings() []string {
	var out []string
	for name := range strings.SplitSeq(c.HostFiles.Keyrings, ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// checkKeyrings rejects relative paths, which would depend on the directory of a command.
func (c Config) checkKeyrings() error {
	var problems []error
	for _, name := range c.PackageKeyrings() {
		if !filepath.IsAbs(name) {
			problems = append(problems, fmt.Errorf("package_keyrings: %q is not an absolute path, such as /etc/apt/keyrings/example.gpg", name))
		}
	}
	return errors.Join(problems...)
}

// checkScanner rejects what is no address of a scanner.
func (c Config) checkScanner() error {
	scheme, rest, _ := strings.Cut(c.HostFiles.Scanner, "://")
	_, _, err := net.SplitHostPort(rest)
	switch {
	case c.HostFiles.Scanner == "", scheme == "unix" && filepath.IsAbs(rest), scheme == "tcp" && err == nil:
		return nil
	}
	return fmt.Errorf("package_scanner: %q is not an address such as unix:///run/clamav/clamd.ctl or tcp://127.0.0.1:3310", c.HostFiles.Scanner)
}

// Limits of waiting and of concurrent starts.
const (
	maxStarts = 1000
	maxQueued = 100_000
)

// checkCapacity rejects zero, so that it cannot be mistaken for unlimited.
func (c Config) checkCapacity() error {
	var problems []error
	if c.Capacity.Live < 1 || c.Capacity.Live > maxLive {
		problems = append(problems, fmt.Errorf("max_live: %d is not 1 to %d", c.Capacity.Live, maxLive))
	}
	if c.Capacity.StartsAtOnce < 0 || c.Capacity.StartsAtOnce > maxStarts {
		problems = append(problems, fmt.Errorf("starts_at_once: %d is not 1 to %d, or 0 to adapt", c.Capacity.StartsAtOnce, maxStarts))
	}
	if c.Capacity.Queued < 1 || c.Capacity.Queued > maxQueued {
		problems = append(problems, fmt.Errorf("max_queued: %d is not 1 to %d", c.Capacity.Queued, maxQueued))
	}
	if c.Capacity.QueueWait < time.Second {
		problems = append(problems, fmt.Errorf("max_queue_wait: %s is too short; use a time such as 1m", c.Capacity.QueueWait))
	}
	if c.Capacity.Paused < 1 || c.Capacity.Paused > maxLive {
		problems = append(problems, fmt.Errorf("max_paused: %d is not 1 to %d", c.Capacity.Paused, maxLive))
	}
	if c.Snapshots.Budget != 0 && c.Snapshots.Budget < minBudget {
		problems = append(problems, fmt.Errorf("snapshot_budget: %s is too little for one sandbox; use at least %s, or 0 for the default", FormatSize(c.Snapshots.Budget), FormatSize(minBudget)))
	}
	if c.Snapshots.Retention != 0 && c.Snapshots.Retention < time.Minute {
		problems = append(problems, fmt.Errorf("snapshot_retention: %s is too short; use a time such as 168h, or 0 to keep them", c.Snapshots.Retention))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"default_timeout", c.Lifetime.Default}, {"max_timeout", c.Lifetime.Max}, {"retention", c.Lifetime.Retention}} {
		if d.value < time.Second {
			problems = append(problems, fmt.Errorf("%s: %s is too short; use a time such as 10m", d.name, d.value))
		}
	}
	if c.Lifetime.Default > c.Lifetime.Max {
		problems = append(problems, fmt.Errorf("default_timeout: %s is more than max_timeout, %s", c.Lifetime.Default, c.Lifetime.Max))
	}
	return errors.Join(problems...)
}

// Limits of clients' connections.
const (
	maxConnections = 1_000_000
	minReserve     = 32
)

// checkConnections rejects zero, so that it cannot be mistaken for unlimited.
func (c Config) checkConnections() error {
	var problems []error
	for _, n := range []struct {
		name            string
		value, min, max int64
	}{
		{"max_connections", c.HTTP.MaxConnections, 1, maxConnections},
		{"max_connections_per_address", c.HTTP.MaxPerAddress, 1, maxConnections},
		{"reserved_descriptors", c.HTTP.ReservedDescriptors, minReserve, maxConnections},
	} {
		if n.value < n.min || n.value > n.max {
			problems = append(problems, fmt.Errorf("%s: %d is not %d to %d", n.name, n.value, n.min, n.max))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"header_timeout", c.HTTP.HeaderTimeout}, {"idle_timeout", c.HTTP.IdleTimeout}} {
		if d.value < time.Second {
			problems = append(problems, fmt.Errorf("%s: %s is too short; use a time such as 10s", d.name, d.value))
		}
	}
	return errors.Join(problems...)
}

// minAuditBytes is the size of a few files of the audit log, which is dropped file by file.
const minAuditBytes = 256 << 20

// minRecordingBytes is the maximum size of a few recordings.
const minRecordingBytes = 64 << 20

// checkAudit rejects limits that would drop entries of the same day. It rejects zero, so that it
// cannot be mistaken for unlimited.
func (c Config) checkAudit() error {
	var problems []error
	if c.Audit.Age < time.Hour {
		problems = append(problems, fmt.Errorf("record_age: %s is too short; use a time such as 2160h", c.Audit.Age))
	}
	if c.Audit.Bytes < minAuditBytes {
		problems = append(problems, fmt.Errorf("record_bytes: %s is too little; use at least %s", FormatSize(c.Audit.Bytes), FormatSize(minAuditBytes)))
	}
	if c.Audit.RecordingBytes < minRecordingBytes {
		problems = append(problems, fmt.Errorf("recording_bytes: %s is too little; use at least %s", FormatSize(c.Audit.RecordingBytes), FormatSize(minRecordingBytes)))
	}
	return errors.Join(problems...)
}

func (c Config) checkLimits() error {
	var problems []error
	if c.Sandbox.MemoryBytes != 0 && c.Sandbox.MemoryBytes < 128<<20 {
		problems = append(problems, fmt.Errorf("memory: %s is too little to start a sandbox; use at least 128m", FormatSize(c.Sandbox.MemoryBytes)))
	}
	if c.Sandbox.OutputBytes == 0 {
		problems = append(problems, errors.New("max_output: 0 would return nothing; use a size such as 1m"))
	}
	return errors.Join(problems...)
}
