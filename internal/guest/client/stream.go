package client

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/gen/processpb"
)

// eventStream is the common interface of the streams of Start and Connect.
type eventStream interface {
	Receive() bool
	Event() *processpb.ProcessEvent
	ResponseHeader() http.Header
	Err() error
	Close() error
}

type startStream struct {
	*connect.ServerStreamForClient[processpb.StartResponse]
}

func (s startStream) Event() *processpb.ProcessEvent { return s.Msg().GetEvent() }

type connectStream struct {
	*connect.ServerStreamForClient[processpb.ConnectResponse]
}

func (s connectStream) Event() *processpb.ProcessEvent { return s.Msg().GetEvent() }

// Exit describes how a program ended.
type Exit struct {
	// Code is the program's exit code, 128+N after signal N, or 124 at the time limit.
	Code     int
	Signal   syscall.Signal // signal that ended the program, or zero
	TimedOut bool
}

// CodeTimeout is the exit code of a program that was killed at its time limit, as with timeout(1)
// of coreutils.
const CodeTimeout = 124

// Stream passes output on until the program has ended. With a terminal, all output goes to stdout.
// If a writer fails, Stream ends the stream and returns the error. It also returns an error if
// input was lost (see Feed).
func (p *Process) Stream(stdout, stderr io.Writer) (Exit, error) {
	defer p.Close()
	for p.stream.Receive() {
		event := p.stream.Event()
		if end := event.GetEnd(); end != nil {
			p.drain()
			exit := ExitOf(end)
			return exit, p.inputError(exit)
		}
		data := event.GetData()
		if data == nil {
			continue
		}
		if err := deliver(data, stdout, stderr); err != nil {
			p.undelivered.Store(true)
			return Exit{}, err
		}
	}
	err := p.stream.Err()
	if connect.CodeOf(err) == connect.CodeDeadlineExceeded && connect.IsWireError(err) {
		return Exit{Code: CodeTimeout, TimedOut: true}, nil
	}
	if err == nil {
		return Exit{}, lost(io.ErrUnexpectedEOF)
	}
	if silent := silentError(p.ctx, nil); silent != nil {
		return Exit{}, silent
	}
	if connect.IsWireError(err) {
		return Exit{}, toFault(err)
	}
	return Exit{}, lost(err)
}

// Undelivered reports whether Stream ended because a writer failed.
func (p *Process) Undelivered() bool { return p.undelivered.Load() }

// drainTimeout is how long to wait for the end of a stream after its last event. The end follows at
// once, unless an attacker who is root inside delays it.
var drainTimeout = 100 * time.Millisecond

// drain reads the stream to its end, so that its connection can be reused. Closing a stream early
// closes the connection, and a new connection into a sandbox costs a fifth of the time of a
// command.
func (p *Process) drain() {
	timer := time.AfterFunc(drainTimeout, p.cancel)
	defer timer.Stop()
	for p.stream.Receive() {
	}
	// Receive reads the protocol's trailer. The program's exit is already known, so errors do not
	// matter here.
	_ = p.stream.Close()
}

// CodeLost is the error code of a call whose connection broke. The sandbox's row in the database
// shows what happened to the sandbox.
const CodeLost = "stream_lost"

// lost returns the error for a stream that broke, because the sandbox or the connection to it is
// gone.
func lost(cause error) error {
	return fault.Wrap(cause, fault.Unavailable, CodeLost, "the sandbox ended or became unreachable while the command ran")
}

// isConnectionError reports whether err is an error of the connection to the guest, not an answer
// of the guest. The text of such an error is only for the log, because it reveals internals.
func isConnectionError(err error) bool {
	return !connect.IsWireError(err) && (connect.CodeOf(err) == connect.CodeUnavailable || errors.Is(err, io.ErrUnexpectedEOF))
}

// deliver writes the output of an event to the writer of its stream.
func deliver(data *processpb.ProcessEvent_DataEvent, stdout, stderr io.Writer) error {
	w, b := stdout, data.GetStdout()
	switch out := data.GetOutput().(type) {
	case *processpb.ProcessEvent_DataEvent_Stderr:
		w, b = stderr, out.Stderr
	case *processpb.ProcessEvent_DataEvent_Pty:
		b = out.Pty
	}
	if len(b) == 0 || w == nil {
		return nil
	}
	_, err := w.Write(b)
	return err
}

// ExitOf converts an end event, which names a signal only in its text.
func ExitOf(end *processpb.ProcessEvent_EndEvent) Exit {
	if sig := signalNamed(end.GetStatus()); sig != 0 {
		return Exit{Code: 128 + int(sig), Signal: sig}
	}
	if sig := signalNamed(end.GetError()); sig != 0 {
		return Exit{Code: 128 + int(sig), Signal: sig}
	}
	code := int(end.GetExitCode())
	if code < 0 {
		code = 255
	}
	return Exit{Code: code}
}

// signalNamed returns the signal in a text such as "signal: killed (core dumped)".
func signalNamed(status string) syscall.Signal {
	name, ok := strings.CutPrefix(status, "signal: ")
	if !ok {
		return 0
	}
	name, _, _ = strings.Cut(name, " (core dumped)")
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if sig.String() == name || strings.TrimPrefix(sig.String(), "signal ") == name {
			return sig
		}
	}
	return 0
}

// toFault converts an error and preserves the guest's text, which is meant for the caller.
func toFault(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	text := err.Error()
	if e, ok := asConnect(err); ok {
		text = e.Message()
	}
	if !connect.IsWireError(err) && connect.CodeOf(err) == connect.CodeCanceled {
		return fault.Wrap(err, fault.Canceled, "canceled", "the call was canceled")
	}
	if isConnectionError(err) {
		return fault.Wrap(err, fault.Unavailable, CodeLost, "the sandbox ended or became unreachable during the call")
	}
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeOutOfRange:
		return fault.Wrap(err, fault.Invalid, "invalid_argument", text)
	case connect.CodeUnauthenticated:
		if strings.Contains(text, "username") {
			return fault.Wrap(err, fault.Invalid, "unknown_user", text)
		}
		return fault.Wrap(err, fault.Unauthenticated, "unauthenticated", text)
	case connect.CodePermissionDenied:
		return fault.Wrap(err, fault.Denied, "permission_denied", text)
	case connect.CodeNotFound:
		return fault.Wrap(err, fault.NotFound, "not_found", text)
	case connect.CodeAlreadyExists:
		return fault.Wrap(err, fault.Exists, "already_exists", text)
	case connect.CodeResourceExhausted:
		return fault.Wrap(err, fault.Exhausted, "exhausted", text)
	case connect.CodeDeadlineExceeded:
		return fault.Wrap(err, fault.Timeout, "timeout", text)
	case connect.CodeUnimplemented:
		return fault.Wrap(err, fault.Unsupported, "unsupported", text)
	case connect.CodeCanceled:
		return fault.Wrap(err, fault.Canceled, "canceled", text)
	case connect.CodeUnavailable:
		return fault.Wrap(err, fault.Unavailable, "unavailable", text)
	default:
		return fault.Wrap(err, fault.Internal, "guest_error", text)
	}
}

// Error codes of a program that could not be started.
const (
	CodeNotFound      = "command_not_found"
	CodeNotExecutable = "command_not_executable"
)

// startFault returns the error of a program that could not be started.
func startFault(err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	classified := toFault(err)
	f, ok := errors.AsType[*fault.Error](classified)
	if !ok {
		return classified
	}
	switch {
	case f.Kind == fault.NotFound:
		return fault.Wrap(err, fault.NotFound, CodeNotFound, f.Text)
	case f.Kind == fault.Denied, f.Kind == fault.Invalid && strings.Contains(f.Text, "cannot run"):
		return fault.Wrap(err, fault.Denied, CodeNotExecutable, f.Text)
	}
	return f
}

// basic returns the Authorization header that names a user.
func basic(user string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"))
}

func asConnect(err error) (*connect.Error, bool) { return errors.AsType[*connect.Error](err) }
