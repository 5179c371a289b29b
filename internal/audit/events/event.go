// Package events owns the form in which an engine writes down what programs
// in a sandbox do: lines of JSON in a file that the engine can only add to.
package events

import "time"

// Kind is the kind of an event.
type Kind string

const (
	// Exec is a program that was executed, by the caller or by another program inside.
	Exec Kind = "exec"
	// Exit is a process that ended.
	Exit Kind = "exit"
	// File is a file that is not as it was before: one event for each path at
	// the end of a command, however often the command wrote it.
	File Kind = "file"
	// Gap says that events were lost, how many, and why.
	Gap Kind = "gap"
	// Limit is that a program was refused because a limit of the sandbox was
	// reached; at most one event a minute for each limit and command.
	Limit Kind = "limit"
	// Began is the first event of a kernel. When a sandbox continues on another kernel, process
	// numbers start again.
	Began Kind = "began"
)

// Event is one line.
type Event struct {
	// Seq numbers the events of one file from 1. A number that is left out is
	// an event that was lost.
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`

	PID    int    `json:"pid,omitempty"`
	Parent int    `json:"parent,omitempty"`
	UID    uint32 `json:"uid,omitempty"`
	// Command is the PID of the process that a caller had started, of which
	// this one descends; 0 is none.
	Command int `json:"command,omitempty"`

	// Of Exec.
	Program string   `json:"program,omitempty"` // path of what runs
	Argv    []string `json:"argv,omitempty"`
	Cwd     string   `json:"cwd,omitempty"`
	Env     []string `json:"env,omitempty"` // names, never values
	// Cut says that arguments or names were left out or shortened.
	Cut bool `json:"cut,omitempty"`

	// Of Exit.
	Code   int           `json:"code,omitempty"`
	Signal int           `json:"signal,omitempty"`
	Took   time.Duration `json:"took_ns,omitempty"` // since it was made

	// Of File.
	Path string `json:"path,omitempty"`
	Op   Op     `json:"op,omitempty"`
	Type string `json:"type,omitempty"` // file, dir, link, other
	Mode uint32 `json:"mode,omitempty"` // permission bits
	Size int64  `json:"size,omitempty"` // of Limit what the limit is
	Sum  string `json:"sum,omitempty"`  // SHA-256 in hexadecimal, of files; of a link it is of its target
	// Unhashed says why there is no Sum: gone, changing, too_large, unreadable.
	Unhashed string `json:"unhashed,omitempty"`

	// Of Gap.
	Lost   uint64 `json:"lost,omitempty"`
	Reason string `json:"reason,omitempty"` // of Limit which one
}

// Limits that a program can reach and go on.
const (
	LimitDisk   = "disk"
	LimitInodes = "inodes"
	LimitPIDs   = "pids"
)

// Op is what became of a file.
type Op string

const (
	Created Op = "created"
	Changed Op = "changed"
	Removed Op = "removed"
)
