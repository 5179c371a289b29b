// Package events owns the format in which an engine records what programs in a sandbox do: lines of
// JSON in an append-only file.
package events

import "time"

// Kind is the kind of an event.
type Kind string

const (
	// Exec means that a program was executed, by the caller or by another program inside.
	Exec Kind = "exec"
	// Exit means that a process ended.
	Exit Kind = "exit"
	// File means that a file changed. There is one event for each path at the end of a command,
	// even if the command wrote the file several times.
	File Kind = "file"
	// Gap means that events were lost. It has their number and the reason.
	Gap Kind = "gap"
	// Limit means that a limit of the sandbox was reached and a program did not get a resource.
	// There is at most one such event a minute for each limit and command.
	Limit Kind = "limit"
	// Began is the first event of a kernel. PIDs restart when a sandbox continues on another
	// kernel.
	Began Kind = "began"
)

// Event is one line of the file.
type Event struct {
	// Seq numbers the events of one file from 1. A missing number is a lost event.
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`

	PID    int    `json:"pid,omitempty"`
	Parent int    `json:"parent,omitempty"`
	UID    uint32 `json:"uid,omitempty"`
	// Command is the PID of the caller's command from which this process descends, or 0.
	Command int `json:"command,omitempty"`

	// For Exec.
	Program string   `json:"program,omitempty"` // path of the program
	Argv    []string `json:"argv,omitempty"`
	Cwd     string   `json:"cwd,omitempty"`
	Env     []string `json:"env,omitempty"` // names of variables, never values
	// Cut reports whether arguments or names were omitted or shortened.
	Cut bool `json:"cut,omitempty"`

	// For Exit.
	Code   int           `json:"code,omitempty"`
	Signal int           `json:"signal,omitempty"`
	Took   time.Duration `json:"took_ns,omitempty"` // since the process was created

	// For File.
	Path string `json:"path,omitempty"`
	Op   Op     `json:"op,omitempty"`
	Type string `json:"type,omitempty"` // file, dir, link, other
	Mode uint32 `json:"mode,omitempty"` // permission bits
	Size int64  `json:"size,omitempty"` // size in bytes; for Limit the value of the limit
	Sum  string `json:"sum,omitempty"`  // SHA-256 in hexadecimal: of a file's content, or of a link's target
	// Unhashed is the reason for a missing Sum: gone, changing, too_large or unreadable.
	Unhashed string `json:"unhashed,omitempty"`

	// For Gap.
	Lost   uint64 `json:"lost,omitempty"`
	Reason string `json:"reason,omitempty"` // reason; for Limit the name of the limit
}

// Limits that a program can reach without being ended.
const (
	LimitDisk   = "disk"
	LimitInodes = "inodes"
	LimitPIDs   = "pids"
)

// Op is what happened to a file.
type Op string

const (
	Created Op = "created"
	Changed Op = "changed"
	Removed Op = "removed"
)
