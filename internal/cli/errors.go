package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/host/text"
)

// failure is an error with the failed operation and a hint.
type failure struct {
	op    string // "create the sandbox"
	cause error
	help  string
	usage bool
}

func (f *failure) Error() string { return "cannot " + f.op + ": " + f.cause.Error() }
func (f *failure) Unwrap() error { return f.cause }

// hint returns the failure with advice about the next step.
func (f *failure) hint(text string) *failure {
	c := *f
	c.help = text
	return &c
}

// fail returns err as a failure of the operation op. It returns a failure unchanged.
func fail(op string, err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return &failure{op: op, cause: err}
}

// usagef returns an error for an invalid command line.
func usagef(format string, args ...any) *failure {
	return &failure{usage: true, cause: fault.Newf(fault.Invalid, "usage", format, args...)}
}

// invalid returns err as an invalid request with a fault code.
func invalid(code string, err error) error { return fault.New(fault.Invalid, code, err.Error()) }

// view is the printed form of an error.
type view struct {
	Op    string `json:"operation,omitempty"`
	Kind  string `json:"kind"`
	Code  string `json:"code"`
	Cause string `json:"message"`
	Hint  string `json:"hint,omitempty"`
}

// viewOf returns the printed form of any error.
func viewOf(err error) view {
	v := view{Kind: string(fault.Internal), Code: string(fault.Internal), Cause: err.Error()}
	if f, ok := errors.AsType[*failure](err); ok {
		v.Op, v.Hint, v.Cause = f.op, f.help, f.cause.Error()
		err = f.cause
		v.Kind, v.Code = "failed", "failed"
	}
	if e, ok := errors.AsType[*crannog.Error](err); ok {
		v.Kind, v.Code = e.Kind, e.Code
		v.Hint = first(v.Hint, e.Hint)
	}
	if e, ok := errors.AsType[*fault.Error](err); ok {
		v.Kind, v.Code = string(e.Kind), fault.CodeOf(e)
		v.Hint = first(v.Hint, e.Hint)
	}
	return v
}

// first returns the first text that is not empty.
func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// report prints an error with its operation, cause, hint and code, or as JSON.
func (t *terminal) report(err error) {
	v := viewOf(err)
	if t.json {
		// Encoding a struct of strings does not fail.
		b, _ := json.Marshal(map[string]view{"error": v})
		fmt.Fprintln(t.Stderr, string(b))
		return
	}
	if v.Op == "" {
		fmt.Fprintf(t.Stderr, "error: %s\n", printable(v.Cause))
	} else {
		fmt.Fprintf(t.Stderr, "error: cannot %s\n  cause: %s\n", printable(v.Op), indent(printable(v.Cause)))
	}
	if v.Hint != "" {
		fmt.Fprintf(t.Stderr, "  hint:  %s\n", indent(printable(v.Hint)))
	}
	fmt.Fprintf(t.Stderr, "  code=%s\n", v.Code)
}

func indent(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n         ")
}

// printable returns text of several lines that a sandbox or a server chose. It omits characters
// that move the cursor, set the terminal's title or change the direction of writing.
func printable(s string) string { return text.Lines(s) }

// codeSettings is the fault code of an invalid setting.
const codeSettings = "invalid_settings"

// Exit codes of commands about sandboxes.
const (
	codeFailed      = 1
	codeUsage       = 2
	codeNotFound    = 3
	codeDenied      = 4
	codeConflict    = 5
	codeUnreachable = 6
)

// Exit codes of commands that check something: a finding, and a failed check.
const (
	codeFound  = 1
	codeCannot = 2
)

// Exit codes of commands that run another program, as in docker and sh.
const (
	codeInternal      = 125
	codeNotExecutable = 126
	codeNoProgram     = 127
)

// codeOf returns the exit code for an error.
func (a *app) codeOf(err error) int {
	v := viewOf(err)
	if a.running {
		switch v.Code {
		case client.CodeNotFound:
			return codeNoProgram
		case client.CodeNotExecutable:
			return codeNotExecutable
		}
		return codeInternal
	}
	if f, ok := errors.AsType[*failure](err); ok && f.usage || v.Code == codeSettings {
		return codeUsage
	}
	switch fault.Kind(v.Kind) {
	case fault.Invalid:
		return codeUsage
	case fault.NotFound:
		return codeNotFound
	case fault.Denied, fault.Unauthenticated:
		return codeDenied
	case fault.Exists, fault.Conflict:
		return codeConflict
	case fault.Unavailable:
		if v.Code == "server_unreachable" {
			return codeUnreachable
		}
	default: // other kinds have no exit code of their own
	}
	if a.checking {
		// Exit code 1 means that something was found.
		return codeCannot
	}
	return codeFailed
}
