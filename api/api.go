// Package api owns the JSON types of Crannog's HTTP API, version 1: what goes
// over the wire and nothing else. Fields are added, never renamed or reused;
// times are RFC 3339, durations end in _seconds, sizes in _bytes.
package api

import "time"

// Prefix is the path under which version 1 is served.
const Prefix = "/v1"

// Limits bounds what a sandbox may use. An absent field is the server's
// default, never unlimited.
type Limits struct {
	MemoryBytes           int64   `json:"memory_bytes,omitempty" minimum:"0" doc:"Memory of the whole sandbox."`
	CPUMillis             int64   `json:"cpu_millis,omitempty" minimum:"0" doc:"Thousandths of one CPU."`
	PIDs                  int64   `json:"pids,omitempty" minimum:"0" doc:"Processes and threads at one time."`
	DiskBytes             int64   `json:"disk_bytes,omitempty" minimum:"0" doc:"Bytes written and not removed."`
	DiskInodes            int64   `json:"disk_inodes,omitempty" minimum:"0" doc:"Files created and not removed."`
	ShmBytes              int64   `json:"shm_bytes,omitempty" minimum:"0" doc:"Size of /dev/shm, which counts against the memory; half of it if absent."`
	CommandTimeoutSeconds float64 `json:"command_timeout_seconds,omitempty" minimum:"0" doc:"Longest run of a command that names no limit itself."`
	OutputBytes           int64   `json:"output_bytes,omitempty" minimum:"0" doc:"Most output that one call returns."`
}

// Effective is what holds for a sandbox: its limits, after defaults, and what
// was seen to hold from inside.
type Effective struct {
	Limits
	Enforced []string `json:"enforced" doc:"The limits that are enforced on this host. A limit that is not in this list is a wish only."`
	Checks   []Check  `json:"checks,omitempty" doc:"What was tried from inside before it was ready. One in which a check does not hold is never ready."`
}

// CreateSandbox is the body of POST /v1/sandboxes.
type CreateSandbox struct {
	Name            string            `json:"name,omitempty" maxLength:"63" doc:"Unique among running sandboxes."`
	Template        string            `json:"template,omitempty" maxLength:"256" doc:"What the sandbox starts from: a template, or a snapshot by ID or name; the host's tools if absent."`
	TimeoutSeconds  float64           `json:"timeout_seconds,omitempty" minimum:"0" doc:"Until it ends by itself; the server's default if absent."`
	Forever         bool              `json:"forever,omitempty" doc:"No end by itself. Local callers only."`
	Ephemeral       bool              `json:"ephemeral,omitempty" doc:"Ends with the server's process. Local callers only."`
	Workspace       string            `json:"workspace,omitempty" maxLength:"4096" doc:"Host directory shown copy-on-write at /workspace. Local callers only."`
	Mounts          []Mount           `json:"mounts,omitempty" maxItems:"16" doc:"More of the host's files and directories."`
	Programs        []string          `json:"programs,omitempty" maxItems:"4" doc:"Host files and directories shown copy-on-write: the Nth at /.crannog/programs/N if it is a directory, at /.crannog/programs/file-N otherwise. Local callers only."`
	Tools           []string          `json:"tools,omitempty" maxItems:"32" doc:"Version managers in the home of the server's user whose programs are shown copy-on-write at their own paths, such as pyenv, nvm or cargo; all is those that are installed. Credentials beside them are not shown. Local callers only."`
	Metadata        map[string]string `json:"metadata,omitempty"`
	Env             map[string]string `json:"env,omitempty" doc:"Environment of every command."`
	Limits          *Limits           `json:"limits,omitempty"`
	Engine          string            `json:"engine,omitempty" maxLength:"63" doc:"What isolates it, by its name in GET /v1/engines. One whose boundary is weaker than the policy's isolation.at_least is refused. If absent, the server's default if that is enough, or else the engine with the weakest boundary that is."`
	PrivatePorts    bool              `json:"private_ports,omitempty" doc:"Programs' ports need the traffic token."`
	MaskRequestHost string            `json:"mask_request_host,omitempty" maxLength:"256" doc:"Host header that programs inside see; ${PORT} is replaced."`
	Access          *Access           `json:"access,omitempty" doc:"What it may reach and change."`
	OnEnd           *OnEnd            `json:"on_end,omitempty" doc:"What happens when its time is up; it ends if absent."`
	RequestID       string            `json:"request_id,omitempty" maxLength:"64" doc:"What the caller calls this request. GET /v1/queue shows it while the request waits."`
}

// TimeoutHeader is the request header in which a client says how many
// milliseconds it will wait. A request that would have to queue for longer is
// refused at once.
const TimeoutHeader = "Crannog-Timeout-Ms"

// Sandbox is one sandbox.
type Sandbox struct {
	ID              string            `json:"id"`
	Name            string            `json:"name,omitempty"`
	Template        string            `json:"template"`
	TemplateID      string            `json:"template_id"`
	State           string            `json:"state" enum:"creating,running,pausing,paused,resuming,stopping,stopped"`
	Reason          string            `json:"reason,omitempty" doc:"Why it stopped: killed, timeout, oom, exited, crashed or lost."`
	Owner           string            `json:"owner,omitempty" doc:"ID of the key that made it; absent for a local one."`
	Ephemeral       bool              `json:"ephemeral,omitempty"`
	StartedAt       time.Time         `json:"started_at"`
	EndsAt          *time.Time        `json:"ends_at,omitempty" doc:"When it ends by itself; absent is never."`
	StoppedAt       *time.Time        `json:"stopped_at,omitempty"`
	PausedAt        *time.Time        `json:"paused_at,omitempty" doc:"Absent unless it is paused."`
	HostFiles       *HostFiles        `json:"host_files,omitempty" doc:"What its saved memory refers to of the host; absent unless it is paused with its memory, or if the engine cannot tell."`
	OnEnd           *OnEnd            `json:"on_end,omitempty" doc:"What happens when its time is up; it ends if absent."`
	Origin          string            `json:"origin,omitempty" doc:"The snapshot that it was made of; absent is the template."`
	At              string            `json:"at,omitempty" doc:"The snapshot that it came from last, or that was last taken of it; absent is its start."`
	Parent          string            `json:"parent,omitempty" doc:"The sandbox that it is a copy of."`
	Metadata        map[string]string `json:"metadata,omitempty"`
	EnvNames        []string          `json:"env_names,omitempty" doc:"Names only: values may be secrets."`
	Workspace       string            `json:"workspace,omitempty"`
	Mounts          []Mount           `json:"mounts,omitempty" doc:"What it shows of the host beside the workspace, also the repository of a workspace that is a linked work tree or a submodule."`
	Notes           []string          `json:"notes,omitempty" doc:"What of the workspace it does not show, and what would help."`
	HiddenTracked   *HiddenTracked    `json:"hidden_tracked,omitempty" doc:"Hidden files that git tracks, so that they can be read from its history inside unless that is hidden too; absent is none."`
	Tools           []Tool            `json:"tools,omitempty" doc:"Directories of the host's version managers that are shown."`
	Keys            *WorkspaceKeys    `json:"workspace_keys,omitempty" doc:"What a look at the contents of the workspace's files found that look like keys; absent without a workspace."`
	MaskRequestHost string            `json:"mask_request_host,omitempty"`
	Engine          string            `json:"engine"`
	Boundary        string            `json:"boundary" doc:"What the wall is made of."`
	Effective       Effective         `json:"effective" doc:"What holds: limits, and what was tried from inside."`
	Network         Network           `json:"network"`
	AccessToken     string            `json:"access_token,omitempty" doc:"Opens the data plane. Absent in lists and once stopped."`
	TrafficToken    string            `json:"traffic_token,omitempty" doc:"Opens private ports. Absent in lists and once stopped."`
}

// HostFiles are the files of the host that a saved memory refers to: what programs had open or mapped.
type HostFiles struct {
	Count  int        `json:"count"`
	Bytes  int64      `json:"size_bytes"`
	Unkept int        `json:"unkept" doc:"Of these no copy is kept: once one of them changes on the host, the memory cannot go on."`
	Files  []HostFile `json:"files,omitempty" doc:"All of them; absent in lists."`
}

// HostFile is one of them.
type HostFile struct {
	Path  string `json:"path" doc:"Inside."`
	Bytes int64  `json:"size_bytes"`
	Kept  bool   `json:"kept" doc:"A copy is kept, with which the memory can be restored after the file changes on the host."`
}

// Tool is a directory of a version manager of the host that a sandbox is shown, copy-on-write.
type Tool struct {
	Manager string   `json:"manager"`
	Dir     string   `json:"dir" doc:"Its path, on the host and inside."`
	Bin     []string `json:"bin,omitempty" doc:"Directories of programs in it, which are in the PATH of every command."`
}

// Mount is a file or directory of the host's that a sandbox shows.
type Mount struct {
	Name     string `json:"name,omitempty" maxLength:"63" doc:"A directory that the server's settings share, in place of source."`
	Source   string `json:"source,omitempty" maxLength:"4096" doc:"Absolute path on the host. Local callers only."`
	Target   string `json:"target,omitempty" maxLength:"1024" doc:"Absolute path inside; that of source if absent."`
	ReadOnly bool   `json:"read_only,omitempty" doc:"It cannot be written inside. Otherwise it is copy-on-write: what is written stays inside."`
}

// WorkspaceKeys says which files of the workspace, shown inside, looked like keys when the sandbox was created.
type WorkspaceKeys struct {
	Count     int       `json:"count" doc:"Files with something that looks like a key."`
	Files     []KeyFile `json:"files,omitempty" doc:"The first of them."`
	Inspected int       `json:"inspected" doc:"Files whose contents were inspected: at most 512, of each the first 64 KiB, and 4 MiB in all, likely names first."`
	// Looked is the earlier name of Inspected. Both are set.
	Looked int `json:"looked" deprecated:"true" doc:"The earlier name of inspected."`
	Left   int `json:"left" doc:"Files that were not inspected."`
}

// KeyFile is a file whose contents look like keys.
type KeyFile struct {
	Name  string   `json:"name" doc:"Below the workspace."`
	Kinds []string `json:"kinds" doc:"By their form, such as github-token, aws-key or private-key."`
}

// HiddenTracked are files of the workspace that the policy hides and git tracks.
type HiddenTracked struct {
	Count int      `json:"count"`
	Names []string `json:"names" doc:"Of many the first, relative to the workspace."`
	// Without says that git is not there inside.
	Without bool `json:"without_history,omitempty" doc:"Their repositories are hidden too, so that the history does not show them, and git does not work inside."`
}

// SandboxList is the answer of GET /v1/sandboxes.
type SandboxList struct {
	Sandboxes  []Sandbox `json:"sandboxes"`
	Running    int       `json:"running" doc:"How many run in all."`
	NextCursor string    `json:"next_cursor,omitempty" doc:"Hand it back as cursor for the next page; absent on the last."`
}

// Duration is the body of POST /v1/sandboxes/{id}/timeout and …/extend.
type Duration struct {
	Seconds float64 `json:"seconds" minimum:"0" doc:"From this moment."`
}

// Metric is one sample of what a sandbox uses.
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
	Command *ProcessCommand `json:"command,omitempty" doc:"The command that it descends from, or is."`
}

// ProcessCommand is a command that a caller had run, or a worker of the code
// interpreter.
type ProcessCommand struct {
	PID   int      `json:"pid" doc:"Of a command that has ended it may be another process's by now."`
	Args  []string `json:"args" doc:"Shortened."`
	Tag   string   `json:"tag,omitempty"`
	Ended bool     `json:"ended,omitempty" doc:"Only what the command left in the background runs."`
}

// ProcessList is the answer of GET /v1/sandboxes/{id}/processes.
type ProcessList struct {
	Processes []Process `json:"processes" doc:"By number."`
	Cut       bool      `json:"cut,omitempty" doc:"There are more than are listed."`
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
