// Package api owns the JSON types of Crannog's HTTP API, version 1. Fields are added, never renamed
// or reused; times are RFC 3339, durations end in _seconds, sizes in _bytes.
package api

import "time"

// Prefix is the path under which version 1 is served.
const Prefix = "/v1"

// Limits bound the resources of a sandbox. An absent field is the server's default, never
// unlimited.
type Limits struct {
	MemoryBytes           int64   `json:"memory_bytes,omitempty" minimum:"0" doc:"Memory of the whole sandbox."`
	CPUMillis             int64   `json:"cpu_millis,omitempty" minimum:"0" doc:"CPU time in thousandths of one CPU."`
	PIDs                  int64   `json:"pids,omitempty" minimum:"0" doc:"Processes and threads at one time."`
	DiskBytes             int64   `json:"disk_bytes,omitempty" minimum:"0" doc:"Bytes that are written and not removed."`
	DiskInodes            int64   `json:"disk_inodes,omitempty" minimum:"0" doc:"Files created and not removed."`
	ShmBytes              int64   `json:"shm_bytes,omitempty" minimum:"0" doc:"Size of /dev/shm, which counts against the memory; half of it if absent."`
	CommandTimeoutSeconds float64 `json:"command_timeout_seconds,omitempty" minimum:"0" doc:"Time limit of a command without a limit of its own."`
	OutputBytes           int64   `json:"output_bytes,omitempty" minimum:"0" doc:"Maximum output that one call returns, in bytes."`
}

// Effective contains the limits of a sandbox after defaults, and the results of its readiness
// probe.
type Effective struct {
	Limits
	Enforced []string `json:"enforced" doc:"The limits that are enforced on this host. A limit that is not in this list is not enforced."`
	Checks   []Check  `json:"checks,omitempty" doc:"Results of the readiness probe. A sandbox with a check that does not hold is never ready."`
}

// CreateSandbox is the body of POST /v1/sandboxes.
type CreateSandbox struct {
	Name            string            `json:"name,omitempty" maxLength:"63" doc:"Unique among running sandboxes."`
	Template        string            `json:"template,omitempty" maxLength:"256" doc:"What the sandbox starts from: a template, or a snapshot by ID or name; the host's tools if absent, or an empty root for an engine that runs WebAssembly modules."`
	Image           string            `json:"image,omitempty" maxLength:"512" doc:"An OCI image to start from, such as python:3.12-slim, in place of a template. A caller on the server's machine has it pulled if it is not there."`
	TimeoutSeconds  float64           `json:"timeout_seconds,omitempty" minimum:"0" doc:"Time until it ends by itself; the server's default if absent."`
	Forever         bool              `json:"forever,omitempty" doc:"It never ends by itself. Local callers only."`
	Ephemeral       bool              `json:"ephemeral,omitempty" doc:"It ends with the server's process. Local callers only."`
	Workspace       string            `json:"workspace,omitempty" maxLength:"4096" doc:"Host directory that is visible copy-on-write at /workspace. Local callers only."`
	Mounts          []Mount           `json:"mounts,omitempty" maxItems:"16" doc:"Further files and directories of the host."`
	Volumes         []VolumeMount     `json:"volumes,omitempty" maxItems:"16" doc:"Volumes to show. Programs change their files unless read_only is set."`
	Programs        []string          `json:"programs,omitempty" maxItems:"4" doc:"Host files and directories that are visible copy-on-write: the Nth at /.crannog/programs/N if it is a directory, at /.crannog/programs/file-N otherwise. Local callers only."`
	Tools           []string          `json:"tools,omitempty" maxItems:"32" doc:"Version managers in the home of the server's user whose programs are visible copy-on-write at their own paths, such as pyenv, nvm or cargo; all means every installed one. Credentials beside them are not visible. Local callers only."`
	Metadata        map[string]string `json:"metadata,omitempty"`
	Env             map[string]string `json:"env,omitempty" doc:"Environment variables of every command."`
	Limits          *Limits           `json:"limits,omitempty"`
	Engine          string            `json:"engine,omitempty" maxLength:"63" doc:"Engine, by its name in GET /v1/engines. An engine whose boundary is weaker than the policy's isolation.at_least is refused. If absent, the server's default if the policy accepts it, or else the engine with the weakest boundary that the policy accepts; auto is the same."`
	AtLeast         string            `json:"at_least,omitempty" enum:"none,shared-kernel,wasm-runtime,userspace-kernel,own-kernel" doc:"The weakest boundary that the caller accepts, beside the policy's isolation.at_least."`
	Containers      bool              `json:"containers,omitempty" doc:"Root inside can run container engines, such as Docker. Off if absent. Refused if the policy has isolation.containers: deny, and by engines that share the host's kernel."`
	PrivatePorts    bool              `json:"private_ports,omitempty" doc:"Requests to programs' ports need the traffic token."`
	MaskRequestHost string            `json:"mask_request_host,omitempty" maxLength:"256" doc:"Host header that programs inside see; ${PORT} is replaced."`
	Access          *Access           `json:"access,omitempty" doc:"Network access and policy."`
	OnEnd           *OnEnd            `json:"on_end,omitempty" doc:"Action at the end of its time; it ends if absent."`
	RequestID       string            `json:"request_id,omitempty" maxLength:"64" doc:"The caller's name for this request. GET /v1/queue shows it while the request waits."`
}

// TimeoutHeader is the request header with the number of milliseconds that a client waits. A
// request that would have to queue for longer is refused at once.
const TimeoutHeader = "Crannog-Timeout-Ms"

// Sandbox is one sandbox.
type Sandbox struct {
	ID              string            `json:"id"`
	Name            string            `json:"name,omitempty"`
	Template        string            `json:"template"`
	TemplateID      string            `json:"template_id"`
	ImageDigest     string            `json:"image_digest,omitempty" doc:"Of the OCI image that it started from; template is its name then."`
	State           string            `json:"state" enum:"creating,running,pausing,paused,resuming,stopping,stopped"`
	Reason          string            `json:"reason,omitempty" doc:"Why it stopped: killed, timeout, oom, exited, crashed or lost."`
	Owner           string            `json:"owner,omitempty" doc:"ID of the API key that created it; absent for a local caller."`
	Ephemeral       bool              `json:"ephemeral,omitempty"`
	StartedAt       time.Time         `json:"started_at"`
	EndsAt          *time.Time        `json:"ends_at,omitempty" doc:"Time at which it ends by itself; absent means never."`
	StoppedAt       *time.Time        `json:"stopped_at,omitempty"`
	PausedAt        *time.Time        `json:"paused_at,omitempty" doc:"Present only while it is paused."`
	HostFiles       *HostFiles        `json:"host_files,omitempty" doc:"Host files that its saved memory refers to; present only while it is paused with its memory and if the engine reports them."`
	OnEnd           *OnEnd            `json:"on_end,omitempty" doc:"Action at the end of its time; it ends if absent."`
	Origin          string            `json:"origin,omitempty" doc:"Snapshot that it was created from; absent for a template."`
	At              string            `json:"at,omitempty" doc:"Snapshot that it came from last, or that was last taken of it; absent at its start."`
	Parent          string            `json:"parent,omitempty" doc:"Sandbox that it is a copy of."`
	Metadata        map[string]string `json:"metadata,omitempty"`
	EnvNames        []string          `json:"env_names,omitempty" doc:"Names only: values may be secrets."`
	Workspace       string            `json:"workspace,omitempty"`
	Mounts          []Mount           `json:"mounts,omitempty" doc:"Host paths that are visible beside the workspace, including the repository of a workspace that is a linked work tree or a submodule."`
	Volumes         []VolumeMount     `json:"volumes,omitempty" doc:"Volumes that are visible."`
	Notes           []string          `json:"notes,omitempty" doc:"Parts of the workspace that are not visible, and what would help; why another engine than the default one was chosen."`
	HiddenTracked   *HiddenTracked    `json:"hidden_tracked,omitempty" doc:"Hidden files that git tracks. They can be read from the history inside unless it is hidden too. Absent means none."`
	Tools           []Tool            `json:"tools,omitempty" doc:"Directories of the host's version managers that are visible."`
	Keys            *WorkspaceKeys    `json:"workspace_keys,omitempty" doc:"Files of the workspace whose contents look like keys; absent without a workspace."`
	MaskRequestHost string            `json:"mask_request_host,omitempty"`
	Engine          string            `json:"engine"`
	Boundary        string            `json:"boundary" doc:"What the engine's isolation is made of."`
	Containers      bool              `json:"containers,omitempty" doc:"Container engines can run inside."`
	Unseen          []string          `json:"unseen,omitempty" doc:"What the audit log's record of programs and files lacks, in sentences."`
	Saves           []string          `json:"saves,omitempty" doc:"What a snapshot, a pause and a copy can keep: memory, processes, files. Absent if nothing, or if an earlier version created it."`
	Effective       Effective         `json:"effective" doc:"Effective limits and results of the readiness probe."`
	Network         Network           `json:"network"`
	AccessToken     string            `json:"access_token,omitempty" doc:"Token for the data plane. Absent in lists and after the end."`
	TrafficToken    string            `json:"traffic_token,omitempty" doc:"Token for private ports. Absent in lists and after the end."`
}

// HostFiles are the host files to which saved memory refers, because programs had them open or
// mapped.
type HostFiles struct {
	Count  int        `json:"count"`
	Bytes  int64      `json:"size_bytes"`
	Unkept int        `json:"unkept" doc:"Files without a copy: once one of them changes on the host, the memory cannot be restored."`
	Files  []HostFile `json:"files,omitempty" doc:"All files; absent in lists."`
}

// HostFile is a host file to which saved memory refers.
type HostFile struct {
	Path  string `json:"path" doc:"Inside."`
	Bytes int64  `json:"size_bytes"`
	Kept  bool   `json:"kept" doc:"A copy is kept, so that the memory can be restored after the file changes on the host."`
}

// Tool is a directory of a version manager of the host that is visible in a sandbox, copy-on-write.
type Tool struct {
	Manager string   `json:"manager"`
	Dir     string   `json:"dir" doc:"Its path, on the host and inside."`
	Bin     []string `json:"bin,omitempty" doc:"Its directories of programs, which are in the PATH of every command."`
}

// Mount is a file or directory of the host that is visible in a sandbox.
type Mount struct {
	Name     string `json:"name,omitempty" maxLength:"63" doc:"Name of a directory that the server's settings share, instead of source."`
	Source   string `json:"source,omitempty" maxLength:"4096" doc:"Absolute path on the host. Local callers only."`
	Target   string `json:"target,omitempty" maxLength:"1024" doc:"Absolute path inside; the path of source if absent."`
	ReadOnly bool   `json:"read_only,omitempty" doc:"Read-only inside. Otherwise copy-on-write: changes stay inside."`
}

// WorkspaceKeys lists the visible files of the workspace whose contents looked like keys when the
// sandbox was created.
type WorkspaceKeys struct {
	Count     int       `json:"count" doc:"Number of files whose contents look like keys."`
	Files     []KeyFile `json:"files,omitempty" doc:"The first of these files."`
	Inspected int       `json:"inspected" doc:"Files whose contents were inspected: at most 512, of each the first 64 KiB, and 4 MiB in all, likely names first."`
	// Looked is the earlier name of Inspected. Both are set.
	Looked int `json:"looked" deprecated:"true" doc:"The earlier name of inspected."`
	Left   int `json:"left" doc:"Files that were not inspected."`
}

// KeyFile is a file whose contents look like keys.
type KeyFile struct {
	Name  string   `json:"name" doc:"Below the workspace."`
	Kinds []string `json:"kinds" doc:"Kinds of keys by their form, such as github-token, aws-key or private-key."`
}

// HiddenTracked are files of the workspace that the policy hides and git tracks.
type HiddenTracked struct {
	Count int      `json:"count"`
	Names []string `json:"names" doc:"The first names, relative to the workspace."`
	// Without is set if git's directory is not visible inside.
	Without bool `json:"without_history,omitempty" doc:"Their repositories are hidden too, so that the history does not show them, and git does not work inside."`
}

// SandboxList is the answer of GET /v1/sandboxes.
type SandboxList struct {
	Sandboxes  []Sandbox `json:"sandboxes"`
	Running    int       `json:"running" doc:"Number of running sandboxes."`
	NextCursor string    `json:"next_cursor,omitempty" doc:"Cursor for the next page; absent on the last page."`
}

// Duration is the body of POST /v1/sandboxes/{id}/timeout and …/extend.
type Duration struct {
	Seconds float64 `json:"seconds" minimum:"0" doc:"Seconds from now."`
}

// Metric is one sample of a sandbox's resource use.
type Metric struct {
	At         time.Time `json:"at"`
	CPUCount   float64   `json:"cpu_count"`
	CPUPercent float64   `json:"cpu_percent" doc:"Of one CPU: 150 is one and a half."`
	MemUsed    int64     `json:"mem_used_bytes"`
	MemTotal   int64     `json:"mem_total_bytes"`
	MemCache   int64     `json:"mem_cache_bytes"`
	DiskUsed   int64     `json:"disk_used_bytes"`
	DiskTotal  int64     `json:"disk_total_bytes"`
	PIDs       int64     `json:"pids"`
}

// MetricList is the answer of GET /v1/sandboxes/{id}/metrics.
type MetricList struct {
	Metrics []Metric `json:"metrics"`
}

// Process is a process of a sandbox, as the sandbox lists it.
type Process struct {
	PID         int      `json:"pid"`
	Parent      int      `json:"parent"`
	User        string   `json:"user,omitempty" doc:"Absent for a number without a name."`
	UID         uint32   `json:"uid"`
	Args        []string `json:"args" doc:"Shortened; a name in brackets for a process without arguments."`
	CPUSeconds  float64  `json:"cpu_seconds" doc:"Processor time so far."`
	MemoryBytes int64    `json:"memory_bytes" doc:"Resident."`
	// Command is absent for the sandbox's first process.
	Command *ProcessCommand `json:"command,omitempty" doc:"Number of the command that it descends from, or is."`
}

// ProcessCommand is a command that a caller ran, or a worker of the code interpreter.
type ProcessCommand struct {
	PID   int      `json:"pid" doc:"Process ID. After the command's end another process may have it."`
	Args  []string `json:"args" doc:"Shortened."`
	Tag   string   `json:"tag,omitempty"`
	Ended bool     `json:"ended,omitempty" doc:"The command has ended, and background processes of it still run."`
}

// ProcessList is the answer of GET /v1/sandboxes/{id}/processes.
type ProcessList struct {
	Processes []Process `json:"processes" doc:"By number."`
	Cut       bool      `json:"cut,omitempty" doc:"The list is incomplete."`
}

// LogEntry is one line of a sandbox's log.
type LogEntry struct {
	At      time.Time         `json:"at"`
	Level   string            `json:"level" enum:"debug,info,warn,error"`
	Message string            `json:"message"`
	Fields  map[string]string `json:"fields,omitempty"`
}

// LogList is the answer of GET /v1/sandboxes/{id}/logs.
type LogList struct {
	Logs []LogEntry `json:"logs"`
}
