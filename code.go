package crannog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"

	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/guestwire"
)

// Event is one event of running code. Type determines which fields have a meaning: "stdout" and
// "stderr" (Text), "result" (Result, Main), "error" (Name, Value, Traceback),
// "number_of_executions" (Count).
type Event struct {
	Type      string
	Text      string
	Name      string
	Value     string
	Traceback string
	Count     int
	// Main is true for the value of the last expression.
	Main bool
	// Result contains a value's representations by name: text, html, markdown, svg, png, jpeg and
	// pdf (base64), latex, json, javascript, data, chart, extra.
	Result map[string]json.RawMessage
}

// CodeOption configures RunCode.
type CodeOption func(map[string]any)

// Language selects the default context of a language, such as "javascript".
func Language(name string) CodeOption { return func(m map[string]any) { m["language"] = name } }

// CodeContext selects a context that was created earlier.
func CodeContext(id string) CodeOption { return func(m map[string]any) { m["context_id"] = id } }

// CodeEnv sets environment variables while the code runs.
func CodeEnv(env map[string]string) CodeOption { return func(m map[string]any) { m["env_vars"] = env } }

// maxEvent bounds one event, so that a sandbox cannot fill the client's memory. The interpreter
// sends results of at most 24 MiB, plus the framing.
const maxEvent = 25 << 20

// RunCode runs code in the interpreter and yields its events as they happen. The interpreter's
// state persists between calls. An error in the code is an event. Ending the iteration interrupts
// the code.
func (s *Sandbox) RunCode(ctx context.Context, code string, opts ...CodeOption) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		body, err := s.execute(ctx, code, opts)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer body.Close()
		lines := bufio.NewReaderSize(body, 64<<10)
		for {
			line, err := nextLine(lines)
			if err != nil {
				yield(Event{}, fmt.Errorf("crannog: the interpreter's stream broke off: %w", err))
				return
			}
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
			event, err := readEvent(line)
			switch {
			case err != nil:
				yield(Event{}, err)
				return
			case event.Type == "keepalive":
				continue
			case event.Type == "end_of_execution":
				return
			}
			if !yield(event, nil) {
				return
			}
		}
	}
}

// nextLine returns a line, valid until the next call. A large line gets a buffer of its own, which
// is freed before the code ends.
func nextLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if err == nil && line == nil {
			return part, nil
		}
		if len(line)+len(part) > maxEvent {
			return nil, fmt.Errorf("an event is larger than %d bytes", maxEvent)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil // the end comes next
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// execute sends code to the interpreter and returns the stream of its events.
func (s *Sandbox) execute(ctx context.Context, code string, opts []CodeOption) (io.ReadCloser, error) {
	in := map[string]any{"code": code}
	for _, opt := range opts {
		opt(in)
	}
	b, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("crannog: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.client.base+"/execute", bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("crannog: %w", err)
	}
	req.Header = s.dataHeader(guestboot.InterpreterPort)
	s.addTrafficToken(req.Header)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.http.Do(req)
	if err != nil {
		return nil, unreachableError(err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, responseError(resp)
	}
	return resp.Body, nil
}

// readEvent parses one line of the interpreter's stream.
func readEvent(line []byte) (Event, error) {
	var wire struct {
		Type      string `json:"type"`
		Name      string `json:"name"`
		Value     string `json:"value"`
		Traceback string `json:"traceback"`
		Count     int    `json:"execution_count"`
		Main      bool   `json:"is_main_result"`
		guestwire.Forms
	}
	if err := json.Unmarshal(line, &wire); err != nil {
		if _, syntax := errors.AsType[*json.SyntaxError](err); syntax {
			return Event{}, fmt.Errorf("crannog: the interpreter sent invalid JSON: %w", err)
		}
		return Event{}, fmt.Errorf("crannog: the interpreter sent an invalid event: %w", err)
	}
	event := Event{
		Type: wire.Type, Name: wire.Name, Value: wire.Value, Traceback: wire.Traceback,
		Count: wire.Count, Main: wire.Main,
	}
	if len(wire.Text) > 0 && wire.Text[0] == '"' {
		if err := json.Unmarshal(wire.Text, &event.Text); err != nil {
			return Event{}, fmt.Errorf("crannog: the interpreter sent invalid text: %w", err)
		}
	}
	if wire.Type == "result" {
		event.Result = wire.ByName()
	}
	return event, nil
}
