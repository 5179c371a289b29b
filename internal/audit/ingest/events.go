package ingest

import (
	"encoding/json"
	"os"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/events"
)

// Exec is the data of an entry of kind exec: a program was executed inside, by the caller or by
// another program.
type Exec struct {
	PID     int    `json:"pid"`
	Parent  int    `json:"parent"`
	UID     uint32 `json:"uid"`
	Command int    `json:"command,omitempty"` // PID of the caller's command from which the program descends
	Program string `json:"program"`           // path of the program
	// Argv is the list of arguments, with secrets redacted.
	Argv []string `json:"argv,omitempty"`
	Cwd  string   `json:"cwd,omitempty"`
	Env  []string `json:"env,omitempty"` // names of variables, never values
	Cut  bool     `json:"cut,omitempty"` // arguments or names were shortened or omitted
	// LeftOut is the reason for a missing argv.
	LeftOut string `json:"left_out,omitempty"`
}

// Exit is the data of an entry of kind exit: a process inside ended.
type Exit struct {
	PID     int   `json:"pid"`
	Parent  int   `json:"parent,omitempty"`
	Command int   `json:"command,omitempty"`
	Code    int   `json:"code"`
	Signal  int   `json:"signal,omitempty"`
	TookNS  int64 `json:"took_ns,omitempty"` // since the process was created
}

// File is the data of an entry of kind file: a file changed. There is one entry for each path at
// the end of a command.
type File struct {
	Path    string    `json:"path"`
	Op      events.Op `json:"op"`   // created, changed or removed
	Type    string    `json:"type"` // file, dir, link or other
	Mode    uint32    `json:"mode,omitempty"`
	Size    int64     `json:"size,omitempty"`
	Sum     string    `json:"sum,omitempty"`      // SHA-256 of the content, hexadecimal
	Unknown string    `json:"unhashed,omitempty"` // reason for a missing sum
	Command int       `json:"command,omitempty"`
	PID     int       `json:"pid,omitempty"`
}

// Limit is the data of an entry of kind limit.hit: a limit of the sandbox was reached, and a
// program did not get a resource.
type Limit struct {
	Limit   string `json:"limit"` // disk, inodes or pids
	Most    int64  `json:"most"`  // value of the limit
	PID     int    `json:"pid,omitempty"`
	UID     uint32 `json:"uid,omitempty"`
	Command int    `json:"command,omitempty"`
}

// valuesUnknown is the reason for omitted text.
const valuesUnknown = "the values to redact were not known"

// Events returns the Form of event files, as an engine writes them.
func Events(dir string, free func(*os.File, int64) error) Form {
	return Form{Source: "events", Dir: dir, Read: readEvent, Free: free}
}

// readEvent converts a line of an event file to an entry.
func readEvent(line []byte, hide Redact) (Line, error) {
	e, err := events.Parse(line)
	if err != nil {
		return Line{}, err
	}
	out := Line{Seq: e.Seq, Draft: audit.Draft{Time: e.Time, Actor: "box"}}
	switch e.Kind {
	case events.Began:
		out.Silent = true
	case events.Exec:
		out.Draft.Kind, out.Draft.Data = audit.Exec, execOf(e, hide)
	case events.Exit:
		out.Draft.Kind = audit.Exit
		out.Draft.Data = Exit{PID: e.PID, Parent: e.Parent, Command: e.Command, Code: e.Code, Signal: e.Signal, TookNS: int64(e.Took)}
	case events.File:
		out.Draft.Kind = audit.File
		out.Draft.Data = File{
			Path: hide.text(e.Path), Op: e.Op, Type: e.Type, Mode: e.Mode, Size: e.Size, Sum: e.Sum, Unknown: e.Unhashed,
			Command: e.Command, PID: e.PID,
		}
	case events.Limit:
		out.Draft.Kind = audit.LimitHit
		out.Draft.Data = Limit{Limit: hide.text(e.Reason), Most: e.Size, PID: e.PID, UID: e.UID, Command: e.Command}
	case events.Gap:
		out.Draft.Kind, out.Draft.Actor = audit.Gap, "server"
		out.Draft.Data = Gap{Lost: e.Lost, Of: "events", Reason: hide.text(e.Reason)}
	}
	return out, nil
}

// execOf returns the data of an executed program, redacted with hide.
func execOf(e events.Event, hide Redact) Exec {
	x := Exec{PID: e.PID, Parent: e.Parent, UID: e.UID, Command: e.Command, Cut: e.Cut}
	if hide == nil {
		x.LeftOut = valuesUnknown
		return x
	}
	x.Program, x.Cwd, x.Argv, x.Env = hide(e.Program), hide(e.Cwd), hide.all(e.Argv), hide.all(e.Env)
	return x.fit()
}

const (
	// maxText is the size of texts that fit into an entry even if every character is escaped.
	maxText = 32 << 10
	// maxArguments limits the encoded data of an entry. It is below the limit of the audit log.
	maxArguments = 200 << 10
)

// fit removes arguments and names, starting with the last, until the rest fits into an entry.
func (x Exec) fit() Exec {
	size := len(x.Program) + len(x.Cwd)
	for _, s := range x.Argv {
		size += len(s)
	}
	for _, s := range x.Env {
		size += len(s)
	}
	for size > maxText {
		text, err := json.Marshal(x)
		if err != nil || len(text) <= maxArguments || len(x.Argv)+len(x.Env) == 0 {
			break
		}
		x.Argv, x.Env, x.Cut = x.Argv[:len(x.Argv)/2], x.Env[:len(x.Env)/2], true
	}
	return x
}

// text redacts a text from inside. If the values to redact are not known, it returns a substitute.
func (h Redact) text(s string) string {
	if h == nil && s != "" {
		return "(left out: " + valuesUnknown + ")"
	}
	if s == "" {
		return ""
	}
	return h(s)
}

// all redacts each string of a list.
func (h Redact) all(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = h(s)
	}
	return out
}
