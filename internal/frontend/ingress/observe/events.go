package observe

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/crannog/crannog/internal/frontend/ingress/redaction"
)

// answer observes the events of a command.
func (cmd *command) answer(res *http.Response) error {
	asJSON, framed := redaction.Framed(res.Header.Get("Content-Type"))
	if res.StatusCode != http.StatusOK || !framed {
		cmd.end(Ended{Error: fmt.Sprintf("http_%d", res.StatusCode)})
		return nil
	}
	if code := grpcCode(res.Header); code != "" {
		cmd.end(Ended{Error: code}) // an answer of trailers only
		return nil
	}
	e := &events{cmd: cmd, decoder: redaction.Decoder{JSON: asJSON}}
	res.Body = &observedBody{ReadCloser: res.Body, parse: e.parse, end: func() {
		if e.invalid {
			cmd.end(Ended{Lost: true, Error: "unreadable"})
		}
		e.trailers(res.Trailer)
	}}
	return nil
}

// observedBody is a body whose reader is observed.
type observedBody struct {
	io.ReadCloser
	parse func([]byte)
	end   func()
}

func (w *observedBody) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	w.parse(b[:n])
	if err == io.EOF {
		w.end()
	}
	return n, err
}

// Parts of a message's header.
const (
	headSize       = 5
	flagCompressed = 1
	flagEnd        = 2
	flagTrailers   = 0x80
	// maxMessage bounds a message in memory: the guest's messages have 32 KiB.
	maxMessage = 4 << 20
)

// events parses the messages of an answer as they pass, in pieces of any size. Output is not
// copied: a complete message in one piece is parsed in place, and a large one in parts. If a
// message is incomplete, the output so far counts.
type events struct {
	cmd     *command
	decoder redaction.Decoder
	head    []byte
	left    int    // of the message
	source  int    // of output that is passed on in parts, or 0
	held    []byte // of an incomplete message
	invalid bool   // an invalid message came
}

func (e *events) parse(b []byte) {
	for len(b) > 0 && !e.invalid {
		if len(e.head) < headSize {
			n := min(headSize-len(e.head), len(b))
			e.head, b = append(e.head, b[:n]...), b[n:]
			if len(e.head) < headSize {
				return
			}
			size := binary.BigEndian.Uint32(e.head[1:])
			if size > maxMessage || e.head[0]&flagCompressed != 0 {
				e.invalid = true
				return
			}
			e.left, e.held = int(size), e.held[:0]
		}
		if len(e.held) == 0 && len(b) >= e.left && e.source == 0 {
			e.message(b[:e.left])
			b, e.head = b[e.left:], e.head[:0]
			continue
		}
		if e.source == 0 && len(e.held) == 0 && e.head[0] == 0 && !e.decoder.JSON {
			source, n := printedHead(b, e.left)
			e.source, b, e.left = source, b[n:], e.left-n
		}
		if e.source > 0 {
			n := min(e.left, len(b))
			e.cmd.printed(e.source, b[:n])
			if b, e.left = b[n:], e.left-n; e.left == 0 {
				e.source, e.head = 0, e.head[:0]
			}
			continue
		}
		n := min(e.left-len(e.held), len(b))
		e.held, b = append(e.held, b[:n]...), b[n:]
		if len(e.held) == e.left {
			e.message(e.held)
			e.head = e.head[:0]
		}
	}
}

// printedHead parses the beginning of a large output event in the binary codec, size bytes long.
// The event has three nested fields, each the only content of the outer one. The rest is output,
// which need not be in memory. For other events the source is 0.
func printedHead(b []byte, size int) (source, n int) {
	for level := range 3 {
		field, kind, tag := protowire.ConsumeTag(b[n:])
		if tag < 0 || kind != protowire.BytesType {
			return 0, 0
		}
		length, m := protowire.ConsumeVarint(b[n+tag:])
		if n += tag + m; m < 0 || n > size || length != uint64(size-n) {
			return 0, 0
		}
		switch want := [...]protowire.Number{1, 2}; {
		case level < 2 && field != want[level]:
			return 0, 0
		case level == 2 && field >= stdout && field <= pty:
			return int(field), n
		}
	}
	return 0, 0
}

func (e *events) message(payload []byte) {
	switch flags := e.head[0]; flags {
	case flagEnd:
		var end struct {
			Error *struct {
				Code string `json:"code"`
			} `json:"error"`
		}
		if json.Unmarshal(payload, &end) == nil && end.Error != nil {
			e.cmd.failed(knownCode(end.Error.Code))
		}
	case flagTrailers:
		e.trailers(trailersOf(payload))
	case 0:
		e.event(payload)
	default:
		e.invalid = true
	}
}

func (e *events) event(payload []byte) {
	if source, data, ok := e.decoder.Printed(payload); ok {
		e.cmd.printed(source, data)
		return
	}
	event, err := e.decoder.Event(payload)
	if err != nil {
		e.invalid = true
		return
	}
	switch {
	case event.GetStart() != nil:
		e.cmd.setPID(event.GetStart().GetPid())
	case event.GetEnd() != nil:
		e.cmd.exited(event.GetEnd())
	case event.GetData() != nil:
		d := event.GetData()
		for source, data := range map[int][]byte{stdout: d.GetStdout(), stderr: d.GetStderr(), pty: d.GetPty()} {
			if len(data) > 0 {
				e.cmd.printed(source, data)
			}
		}
	}
}

// trailersOf parses the trailers at the end of a gRPC-Web answer.
func trailersOf(payload []byte) http.Header {
	h := http.Header{}
	for line := range strings.Lines(string(payload)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return h
}

// trailers processes the trailers of an answer, which contain the status of a gRPC call.
func (e *events) trailers(h http.Header) {
	if code := grpcCode(h); code != "" {
		e.cmd.failed(code)
	}
}

// grpcCode returns the code of a failed call, or "".
func grpcCode(h http.Header) string {
	switch status := h.Get("Grpc-Status"); status {
	case "", "0":
		return ""
	default:
		var code connect.Code
		if len(status) > 2 {
			return "unknown"
		}
		if _, err := fmt.Sscan(status, (*uint32)(&code)); err != nil {
			return "unknown"
		}
		return knownCode(code.String())
	}
}

// knownCode returns a known code, or a fixed one, because a program with root inside could send any
// text.
func knownCode(code string) string {
	var c connect.Code
	if c.UnmarshalText([]byte(code)) != nil {
		return "unknown"
	}
	return c.String()
}
