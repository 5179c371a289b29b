package interpreter

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxMessage limits one line of a worker. Results are below 16 MiB. Code that writes to the pipe
// itself must not fill the server's memory.
const maxMessage = 24 << 20

// message is one line from a worker. Code in the sandbox can forge messages. A forged message
// deceives only the client that sent the code, because it is used for nothing except the answer.
type message struct {
	Type string `json:"type"` // ready, result, error or done
	// N is the number of the request to which the message belongs. Late messages, from threads that
	// outlive their execution, are discarded.
	N int `json:"n"`
	// Ack requests a byte on the worker's third pipe as soon as the message is passed on. This
	// preserves the order of results and printed text.
	Ack bool `json:"ack,omitempty"`
	// Status is the exit status of the code, for languages with exit statuses.
	Status int `json:"status,omitempty"`

	result
	execError
}

// result is a value that a client can show, in several formats.
type result struct {
	Text       *string         `json:"text,omitempty"`
	HTML       *string         `json:"html,omitempty"`
	Markdown   *string         `json:"markdown,omitempty"`
	SVG        *string         `json:"svg,omitempty"`
	PNG        *string         `json:"png,omitempty"`
	JPEG       *string         `json:"jpeg,omitempty"`
	PDF        *string         `json:"pdf,omitempty"`
	LaTeX      *string         `json:"latex,omitempty"`
	JSON       json.RawMessage `json:"json,omitempty"`
	JavaScript *string         `json:"javascript,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
	Chart      json.RawMessage `json:"chart,omitempty"`
	Extra      json.RawMessage `json:"extra,omitempty"`
	IsMain     bool            `json:"is_main_result"`
}

// execError describes how code failed.
type execError struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// errMessageTooLong is returned for a line beyond maxMessage.
var errMessageTooLong = fmt.Errorf("a message is longer than %d bytes", maxMessage)

// messages reads a worker's lines.
type messages struct{ r *bufio.Reader }

func newMessages(r io.Reader) *messages { return &messages{bufio.NewReaderSize(r, 16<<10)} }

// next returns the next message, or an error after which nothing more can be read: io.EOF at the
// end, anything else if the worker violated the protocol.
func (m *messages) next() (message, error) {
	var line []byte
	for {
		part, err := m.r.ReadSlice('\n')
		if len(line)+len(part) > maxMessage {
			return message{}, errMessageTooLong
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return message{}, io.EOF
		}
		break
	}
	var msg message
	if err := json.Unmarshal(line, &msg); err != nil {
		return message{}, fmt.Errorf("message: %w", err)
	}
	if err := msg.check(); err != nil {
		return message{}, err
	}
	return msg, nil
}

// check returns an error for an unknown type.
func (m message) check() error {
	switch m.Type {
	case "ready", "result", "error", "done":
		return nil
	default:
		return fmt.Errorf("unknown message type %q", truncate(m.Type, 40))
	}
}
