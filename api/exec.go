package api

// Exec is the body of POST /v1/sandboxes/{id}/exec.
type Exec struct {
	Cmd            []string          `json:"cmd" minItems:"1" maxItems:"4096" doc:"Program and arguments. No shell interprets them."`
	Stdin          string            `json:"stdin,omitempty" doc:"Standard input; none if absent."`
	Env            map[string]string `json:"env,omitempty"`
	Cwd            string            `json:"cwd,omitempty" maxLength:"4096" doc:"Working directory; the user's home if absent."`
	Encoding       string            `json:"encoding,omitempty" enum:"base64" doc:"How cmd, stdin, cwd and the values of env are written: as text if absent, base64 for bytes that need not be UTF-8."`
	User           string            `json:"user,omitempty" maxLength:"64" doc:"The sandbox's default user if absent."`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty" minimum:"0" doc:"The sandbox's command limit if absent."`
	OutputBytes    int64             `json:"output_bytes,omitempty" minimum:"0" doc:"Maximum size of stdout and stderr together, in bytes; the sandbox's limit if absent."`
	DetachChildren bool              `json:"detach_children,omitempty" doc:"Return when the command itself has ended, even if a background process holds its output."`
}

// Values of ExecResult.Hit.
const (
	HitNone     = ""
	HitTimeout  = "timeout"   // the time limit ended the command
	HitOOM      = "oom"       // the memory limit ended the sandbox, or the command reported that memory ran out
	HitDiskFull = "disk_full" // the command failed while the disk or its inodes were used up
	HitPIDs     = "pids"      // the command failed while no process could be made
	HitOutput   = "output"    // the answer holds only a part of the output
)

// ExecResult is the answer of POST /v1/sandboxes/{id}/exec. A command that ends with a code other
// than zero is not an error of the API.
type ExecResult struct {
	ExitCode   int    `json:"exit_code" doc:"The command's own, 128+N after signal N, 124 at its time limit."`
	Stdout     string `json:"stdout" doc:"Bytes that are not UTF-8 are replaced."`
	Stderr     string `json:"stderr" doc:"Bytes that are not UTF-8 are replaced."`
	Truncated  bool   `json:"truncated" doc:"Output beyond the limit was discarded."`
	Hit        string `json:"hit" enum:",timeout,oom,disk_full,pids,output" doc:"The limit that the command ran into, or empty."`
	DurationMS int64  `json:"duration_ms"`
	// Denied lists denials, because a program only sees that a name has no address.
	Denied []Denial `json:"denied,omitempty" doc:"Denials while the command ran, each once and at most 20. Without a network, the names that the sandbox tried to resolve, if the command failed."`
	// Checkpoint is the newest signed tree head of the audit log, to be stored elsewhere. It covers
	// the entries up to its signature, at most a few hundred milliseconds ago while commands run.
	// The tree head in the answer to the sandbox's removal covers all entries.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty" doc:"Signed tree head of the audit log. Keep it on another machine."`
}

// Denial is an action of a sandbox that its policy denied.
type Denial struct {
	What string `json:"what" doc:"A name, a host with its port, or a request without its query."`
	Rule string `json:"rule" doc:"Rule that decided."`
	Fix  string `json:"fix,omitempty" doc:"Change that would allow it."`
	// Reason is set where no change of the network's rules would allow it.
	Reason string `json:"reason,omitempty" doc:"Why a package was refused."`
}
