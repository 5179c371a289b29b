// Package fault owns the error kinds that every API and command shares. An error has a stable code
// and a text for the caller; its cause is shown in the log only.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind classifies an error by what the caller can do about it.
type Kind string

const (
	Internal        Kind = "internal"        // a bug of Crannog, which the caller can only report
	Invalid         Kind = "invalid"         // the request is invalid and never succeeds as it is
	Unauthenticated Kind = "unauthenticated" // no key, or a wrong one
	Denied          Kind = "denied"          // the caller is known and lacks permission
	NotFound        Kind = "not_found"       // the object does not exist, or belongs to another caller
	Exists          Kind = "exists"          // the name is in use
	Conflict        Kind = "conflict"        // the object's current state forbids this
	Exhausted       Kind = "exhausted"       // a limit or quota is reached
	Unsupported     Kind = "unsupported"     // this server or engine cannot do this
	Unavailable     Kind = "unavailable"     // trying again may work
	Timeout         Kind = "timeout"         // a deadline passed
	Canceled        Kind = "canceled"        // the caller canceled the request
)

// Kinds lists all kinds, for tables that must be complete.
var Kinds = []Kind{
	Internal, Invalid, Unauthenticated, Denied, NotFound, Exists,
	Conflict, Exhausted, Unsupported, Unavailable, Timeout, Canceled,
}

// Error is a classified error. Text, Code and Hint are for the caller; the cause is for the log.
type Error struct {
	Kind Kind
	Code string // stable machine name, snake_case, e.g. "template_not_found"
	Text string
	Hint string // what to do about it, or ""
	// After is how long a caller should wait before it tries again. Zero means that this is not
	// known.
	After time.Duration

	cause error
}

// New returns an error without a cause.
func New(kind Kind, code, text string) *Error {
	return &Error{Kind: kind, Code: code, Text: text}
}

// Newf is New with a format.
func Newf(kind Kind, code, format string, args ...any) *Error {
	return New(kind, code, fmt.Sprintf(format, args...))
}

// Wrap returns an error with a cause, which only the log shows.
func Wrap(cause error, kind Kind, code, text string) *Error {
	return &Error{Kind: kind, Code: code, Text: text, cause: cause}
}

// WithHint returns a copy with advice on what the caller can do.
func (e *Error) WithHint(hint string) *Error {
	c := *e
	c.Hint = hint
	return &c
}

// WithRetryAfter returns a copy with the time after which the caller may try again.
func (e *Error) WithRetryAfter(d time.Duration) *Error {
	c := *e
	c.After = d
	return &c
}

// Error returns the text for logs, which includes the cause.
func (e *Error) Error() string {
	if e.cause == nil {
		return e.Text
	}
	return e.Text + ": " + e.cause.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// KindOf returns the kind of the first classified error in the chain, and Internal for all others.
// The text of an unclassified error is therefore hidden instead of leaked.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// CodeOf returns the stable code. It returns "internal" for an unclassified error and "" for nil.
func CodeOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Code != "" {
		return e.Code
	}
	return string(KindOf(err))
}

// PublicText returns the text that a caller may see, never a cause.
func PublicText(err error) string {
	if e, ok := errors.AsType[*Error](err); ok && e.Kind != Internal {
		return e.Text
	}
	return "internal error"
}

// HintOf returns the advice for the caller, or "".
func HintOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Hint
	}
	return ""
}

// RetryAfterSeconds returns RetryAfter in whole seconds, rounded up, as in HTTP's Retry-After
// header.
func RetryAfterSeconds(err error) int {
	return int((RetryAfter(err) + time.Second - 1) / time.Second)
}

// RetryAfter returns how long the caller should wait before it tries again, or zero if the error
// has no such time.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.After
	}
	return 0
}
