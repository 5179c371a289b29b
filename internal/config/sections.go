package config

import "time"

// HTTP has the settings of the HTTP server and its connections.
type HTTP struct {
	Listen              string        // address
	Insecure            bool          // allow an address that other machines can reach, without TLS
	MaxConnections      int64         // connections of clients at once
	MaxPerAddress       int64         // connections from one address
	ReservedDescriptors int64         // descriptors that clients cannot use
	HeaderTimeout       time.Duration // time limit for the head of a request
	IdleTimeout         time.Duration // time that a client may be idle, or not read an answer
}

// Telemetry has the settings of the server's log, and the address that receives traces and metrics.
type Telemetry struct {
	LogLevel  string // debug, info, warn or error
	LogFormat string // text or json
	Endpoint  string // "" means that of the environment
}

// SecretStore has the key that encrypts secrets, and the command lines that exec: may run.
type SecretStore struct{ Key, Exec string }

// HostFiles has the files of the host that sandboxes may see, or that the server reads.
type HostFiles struct {
	Mounts   string // directories that callers with a key may mount by name
	Etc      string // further paths of /etc
	Keyrings string // further keys that may sign Debian archives
	Scanner  string // address of the scanner of packages
}

// Webhook has the address that receives approval requests, and the secret that signs the messages.
// Without an address, no messages are sent.
type Webhook struct {
	URL    string
	Secret Secret
}

// MCPEndpoint has the host names of /mcp, and who decides the requests of agents: person or any.
type MCPEndpoint struct{ Hosts, Approver string }

// Policies has the policies that apply to all sandboxes, and the default level.
type Policies struct {
	Organisation string // file with the organisation's policy; "" means none
	Project      string // file with the project's policy; "" means none
	Level        string // level of a sandbox that names none; "" means standard
}

// Engines has the settings of what isolates sandboxes.
type Engines struct {
	Default                   string // the engine of a sandbox that names none; "" means the first one
	DockerHost, DockerRuntime string // the Docker Engine that can run sandboxes
	Attachment                string // "", or ProxyAttachment
	MicroVMKernel             string // the kernel of virtual machines
	MicroVMEmulation          string // "", or InsecureForTests
}

// Capacity limits how many sandboxes exist at once, and how requests wait for a start.
type Capacity struct {
	Live         int64         // sandboxes alive
	Paused       int64         // paused sandboxes
	StartsAtOnce int64         // sandboxes that start at the same time; zero adapts
	Queued       int64         // requests that may wait for a start
	QueueWait    time.Duration // longest expected wait for a start
}

// Lifetime limits how long a sandbox and its traces exist.
type Lifetime struct {
	Default   time.Duration // lifetime of a sandbox that names none
	Max       time.Duration // longest lifetime that a key may request
	Retention time.Duration // how long events and flows of ended sandboxes are kept
}

// Disk has the disk space of volumes and of the package cache.
type Disk struct {
	Volumes  int64 // for the volumes of one key; 0 is the default
	Packages int64 // for the package cache; 0 is the default
}

// Images has the settings of OCI images.
type Images struct {
	Registries, Mirrors, Insecure string // lists separated by commas
	Budget                        int64  // disk space; zero means a share of the free space
}

// Snapshots has the settings of saved states.
type Snapshots struct {
	Budget    int64         // disk space; zero means a share of the free space
	Retention time.Duration // how long snapshots are kept; zero means until they are removed
}

// Audit has the settings of the audit log and of session recordings.
type Audit struct {
	Age            time.Duration // how long entries are kept
	Bytes          int64         // maximum size of the audit log
	TreeHeads      string        // further destinations of signed tree heads
	RecordingBytes int64         // maximum size of all session recordings
}

// Client has the settings of clients.
type Client struct {
	URL string // server to connect to; "" means the local one
	Key Secret // API key for URL
}

// SandboxDefaults has the defaults of new sandboxes.
type SandboxDefaults struct {
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
