package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// setting describes one setting, and how its value is parsed and printed.
type setting struct {
	name string // name in the file; the environment variable is CRANNOG_ and the name in capitals
	help string
	set  func(*Config, string) error
	show func(*Config) string
}

var settings = []setting{
	text("state", "directory of the server's state", func(c *Config) *string { return &c.State }),
	text("listen", "address of the HTTP server", func(c *Config) *string { return &c.HTTP.Listen }),
	toggle("insecure", "allow an address that other machines can reach, without TLS", func(c *Config) *bool { return &c.HTTP.Insecure }),
	text("log_level", "debug, info, warn or error", func(c *Config) *string { return &c.Telemetry.LogLevel }),
	text("log_format", "text, or json for one object a line", func(c *Config) *string { return &c.Telemetry.LogFormat }),
	text("otlp_endpoint", "URL of an OpenTelemetry receiver, such as http://localhost:4318, that gets traces and metrics over OTLP with JSON; empty is OTEL_EXPORTER_OTLP_ENDPOINT, without which nothing is sent (docs/reference/telemetry.md)", func(c *Config) *string { return &c.Telemetry.Endpoint }),
	text("approval_webhook", "URL that receives each approval request and decision; empty is none", func(c *Config) *string { return &c.Webhook.URL }),
	{
		"approval_webhook_secret", "secret that signs the calls to approval_webhook",
		func(c *Config, v string) error { c.Webhook.Secret = Secret(v); return nil },
		func(c *Config) string { return c.Webhook.Secret.String() },
	},
	text("mcp_hosts", "further host names of /mcp and the console, separated by commas, besides addresses, localhost and the domain", func(c *Config) *string { return &c.MCP.Hosts }),
	text("mcp_approver", "who decides requests of an agent on /mcp: person (through the console or the CLI), or any (also the person at the agent)", func(c *Config) *string { return &c.MCP.Approver }),
	text("secrets_key", "key that encrypts secrets: file, keyring, or transit:mount/key in the Vault that VAULT_ADDR names", func(c *Config) *string { return &c.Secrets.Key }),
	text("mounts", "directories of the host that callers with a key may mount by name: NAME=/PATH[:ro|:cow], separated by semicolons", func(c *Config) *string { return &c.HostFiles.Mounts }),
	text("secrets_exec", "command lines that secrets named exec: may run, separated by semicolons", func(c *Config) *string { return &c.Secrets.Exec }),
	text("organisation_policy", "file with the policy that limits every sandbox; read once, at the start", func(c *Config) *string { return &c.Policies.Organisation }),
	text("project_policy", "file with a policy of this state directory's sandboxes, below the organisation's", func(c *Config) *string { return &c.Policies.Project }),
	text("host_etc", "files and directories of the host's /etc that sandboxes also see, separated by commas (docs/reference/host-etc.md); none may contain a secret", func(c *Config) *string { return &c.HostFiles.Etc }),
	text("default_level", "default level: strict, standard, light or minimal; empty is standard", func(c *Config) *string { return &c.Policies.Level }),
	text("default_engine", "default engine, as crannog engines lists them; empty is the first one", func(c *Config) *string { return &c.Engines.Default }),
	text("docker_host", "address of the Docker Engine for the engine docker: unix:///run/docker.sock or tcp://HOST:PORT; empty is that of DOCKER_HOST, or Docker's default", func(c *Config) *string { return &c.Engines.DockerHost }),
	text("network_attachment", "how the engines jail and docker connect sandboxes to the egress gateway: proxy (only by the proxy that HTTP_PROXY, HTTPS_PROXY and ALL_PROXY name); empty is by a network interface if one can be created", func(c *Config) *string { return &c.Engines.Attachment }),
	text("microvm_kernel", "kernel of the engine microvm: a file vmlinuz-VERSION, or a directory with kernels or an unpacked package of one; empty is the newest in /boot", func(c *Config) *string { return &c.Engines.MicroVMKernel }),
	text("microvm_emulation", "for tests: insecure-for-tests runs the engine microvm without KVM, slowly and without a boundary; empty requires KVM", func(c *Config) *string { return &c.Engines.MicroVMEmulation }),
	text("docker_runtime", "OCI runtime of the engine docker, such as crun, as the Docker Engine names it; empty is the Docker Engine's default", func(c *Config) *string { return &c.Engines.DockerRuntime }),
	count("max_live", "sandboxes alive at once", func(c *Config) *int64 { return &c.Capacity.Live }),
	count("starts_at_once", "sandboxes that start at the same time; 0 adapts to the machine", func(c *Config) *int64 { return &c.Capacity.StartsAtOnce }),
	count("max_queued", "requests that may wait for a sandbox; further ones are refused", func(c *Config) *int64 { return &c.Capacity.Queued }),
	duration("max_queue_wait", "longest expected waiting time at which a request is queued", func(c *Config) *time.Duration { return &c.Capacity.QueueWait }),
	count("max_connections", "connections of clients at once; fewer where the limit of open files has no room for them", func(c *Config) *int64 { return &c.HTTP.MaxConnections }),
	count("max_connections_per_address", "connections from one address (for IPv6, one network of 64 bits); behind a proxy all clients have the proxy's address", func(c *Config) *int64 { return &c.HTTP.MaxPerAddress }),
	count("reserved_descriptors", "file descriptors reserved for the local socket, the database, the audit log and sandboxes", func(c *Config) *int64 { return &c.HTTP.ReservedDescriptors }),
	duration("header_timeout", "time limit for receiving the head of a request", func(c *Config) *time.Duration { return &c.HTTP.HeaderTimeout }),
	duration("idle_timeout", "time without a further request, or without reading the answer, after which a connection is closed", func(c *Config) *time.Duration { return &c.HTTP.IdleTimeout }),
	count("max_paused", "paused sandboxes at the same time", func(c *Config) *int64 { return &c.Capacity.Paused }),
	size("snapshot_budget", "disk space for snapshots and paused sandboxes; 0 is 20g or a fifth of the free space, whichever is less", func(c *Config) *int64 { return &c.Snapshots.Budget }),
	text("image_registries", "where images may come from and go to, separated by commas: registries, repositories, or all below a path (docker.io/library/*); empty is any", func(c *Config) *string { return &c.Images.Registries }),
	text("image_mirrors", "mirrors to try before a registry, separated by commas: docker.io=mirror.example:5000", func(c *Config) *string { return &c.Images.Mirrors }),
	text("image_insecure", "registries that may be used without TLS or with an unknown certificate, separated by commas", func(c *Config) *string { return &c.Images.Insecure }),
	size("image_budget", "disk space for images; 0 is 50g or half of the free space, whichever is less", func(c *Config) *int64 { return &c.Images.Budget }),
	size("package_budget", "disk space for the package cache; 0 is 10g or a tenth of the free space, whichever is less", func(c *Config) *int64 { return &c.Disk.Packages }),
	text("package_keyrings", "files with OpenPGP keys that may sign Debian archives, besides the host's own, separated by commas", func(c *Config) *string { return &c.HostFiles.Keyrings }),
	text("package_scanner", "ClamAV's daemon for packages.scan of a policy: unix:///PATH or tcp://HOST:PORT; empty is unix:///run/clamav/clamd.ctl", func(c *Config) *string { return &c.HostFiles.Scanner }),
	size("volume_budget", "disk space for the volumes of one key; 0 is 20g", func(c *Config) *int64 { return &c.Disk.Volumes }),
	duration("snapshot_retention", "time for which a snapshot is kept; 0 is until it is removed", func(c *Config) *time.Duration { return &c.Snapshots.Retention }),
	duration("default_timeout", "default lifetime of a sandbox", func(c *Config) *time.Duration { return &c.Lifetime.Default }),
	duration("max_timeout", "longest lifetime that a key may request", func(c *Config) *time.Duration { return &c.Lifetime.Max }),
	duration("retention", "how long the events of an ended sandbox are kept", func(c *Config) *time.Duration { return &c.Lifetime.Retention }),
	{
		"pool", "memory for warm sandboxes: auto (a tenth of the available memory), a size, or off",
		func(c *Config, v string) (err error) { c.Pool, err = parsePool(v); return err },
		func(c *Config) string { return c.Pool.String() },
	},
	{
		"pool_languages", "languages that are loaded in warm sandboxes: python, javascript, both separated by a comma, or none",
		func(c *Config, v string) (err error) { c.PoolLanguages, err = parseLanguages(v); return err },
		func(c *Config) string { return c.PoolLanguages.String() },
	},
	duration("record_age", "time for which entries of the audit log are kept; older files are dropped verifiably", func(c *Config) *time.Duration { return &c.Audit.Age }),
	size("record_bytes", "maximum size of the audit log; beyond it the oldest files are dropped verifiably", func(c *Config) *int64 { return &c.Audit.Bytes }),
	text("record_checkpoints", "further destinations of signed tree heads of the audit log, separated by semicolons: file:/path, syslog:, or syslog:udp://host:514", func(c *Config) *string { return &c.Audit.TreeHeads }),
	size("recording_bytes", "maximum size of all session recordings; beyond it the oldest are dropped", func(c *Config) *int64 { return &c.Audit.RecordingBytes }),
	text("url", "server to talk to; empty is the local one", func(c *Config) *string { return &c.Client.URL }),
	{"key", "API key for url", func(c *Config, v string) error { c.Client.Key = Secret(v); return nil }, func(c *Config) string { return c.Client.Key.String() }},
	text("template", "what a sandbox starts from", func(c *Config) *string { return &c.Sandbox.Template }),
	text("tools", "version managers in the home whose programs are visible, separated by commas, or all; none also applies to agents; empty is all for agents only", func(c *Config) *string { return &c.Sandbox.Tools }),
	size("memory", "memory of a sandbox; 0 is the server's default", func(c *Config) *int64 { return &c.Sandbox.MemoryBytes }),
	{"cpus", "CPUs of a sandbox; 0 is the server's default", setCPUs, func(c *Config) string { return FormatCPUs(c.Sandbox.MilliCPU) }},
	count("pids", "processes of a sandbox; 0 is the server's default", func(c *Config) *int64 { return &c.Sandbox.PIDs }),
	size("disk", "disk space for a sandbox's files; 0 is the server's default", func(c *Config) *int64 { return &c.Sandbox.DiskBytes }),
	count("inodes", "files that a sandbox may create; 0 is the server's default", func(c *Config) *int64 { return &c.Sandbox.DiskInodes }),
	size("shm", "size of /dev/shm, which counts against the memory; 0 is half of the memory", func(c *Config) *int64 { return &c.Sandbox.ShmBytes }),
	duration("command_timeout", "default time limit of a command; 0 is the server's default", func(c *Config) *time.Duration { return &c.Sandbox.CommandTimeout }),
	size("max_output", "maximum output that one call returns", func(c *Config) *int64 { return &c.Sandbox.OutputBytes }),
}

func text(name, help string, at func(*Config) *string) setting {
	return setting{name, help, func(c *Config, v string) error { *at(c) = v; return nil }, func(c *Config) string { return *at(c) }}
}

func toggle(name, help string, at func(*Config) *bool) setting {
	set := func(c *Config, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q is not true or false", v)
		}
		*at(c) = b
		return nil
	}
	return setting{name, help, set, func(c *Config) string { return strconv.FormatBool(*at(c)) }}
}

func size(name, help string, at func(*Config) *int64) setting {
	set := func(c *Config, v string) (err error) { *at(c), err = ParseSize(v); return err }
	return setting{name, help, set, func(c *Config) string { return FormatSize(*at(c)) }}
}

func count(name, help string, at func(*Config) *int64) setting {
	set := func(c *Config, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is not a whole number from 0", v)
		}
		*at(c) = n
		return nil
	}
	return setting{name, help, set, func(c *Config) string { return strconv.FormatInt(*at(c), 10) }}
}

func setCPUs(c *Config, v string) (err error) {
	c.Sandbox.MilliCPU, err = ParseCPUs(v)
	return err
}

func duration(name, help string, at func(*Config) *time.Duration) setting {
	set := func(c *Config, v string) (err error) { *at(c), err = ParseDuration(v); return err }
	return setting{name, help, set, func(c *Config) string { return at(c).String() }}
}

// Value is one setting as `crannog config` shows it.
type Value struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
	Help   string `json:"help"`
}

// Values lists every setting with its origin.
func (c Config) Values() []Value {
	values := make([]Value, 0, len(settings))
	for _, s := range settings {
		origin := c.origin[s.name]
		if origin == "" {
			origin = "default"
		}
		values = append(values, Value{s.name, s.show(&c), origin, s.help})
	}
	return values
}

// Set sets one setting, for a flag.
func (c *Config) Set(name, value, origin string) error {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
	if i < 0 {
		return fmt.Errorf("unknown setting %q", name)
	}
	if err := settings[i].set(c, value); err != nil {
		return fmt.Errorf("%s: %w", origin, err)
	}
	c.origin[name] = origin
	return nil
}

func envName(setting string) string { return "CRANNOG_" + strings.ToUpper(setting) }

// ParseDuration parses "90s", "1h30m" or whole seconds.
func ParseDuration(v string) (time.Duration, error) {
	if n, err := strconv.ParseInt(v, 10, 64); err == nil && n >= 0 && n < 1<<32 {
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration such as 90s or 1h30m", v)
	}
	return d, nil
}
