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

// answer watches the events of a command.
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
	res.Body = &watched{ReadCloser: res.Body, see: e.see, end: func() {
		if e.blind {
			cmd.end(Ended{Lost: true, Error: "unreadable"})
		}
		e.trailers(res.Trailer)
	}}
	return nil
}

// watched shows what is read of a body.
type watched struct {
	io.ReadCloser
	see func([]byte)
	end func()
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	w.see(b[:n])
	if err == io.EOF {
		w.end()
	}
	return n, err
}

// Parts of a message's head.
const (
	headSize       = 5
	flagCompressed = 1
	flagEnd        = 2
	flagTrailers   = 0x80
	// maxMessage bounds a message that is held: the guest's have 32 KiB.
	maxMessage = 4 << 20
)

// events reads the messages of an answer as they pass, in whatever pieces.
// Output is not copied on its way: a message that is here in one piece is read
// where it lies, and a large one as it comes. Of one that is cut short, what
// had come counts.
type events struct {
	cmd     *command
	decoder redaction.Decoder
	head    []byte
	left    int    // of the message
	source  int    // of output that is passed on as it comes, or 0
	held    []byte // of a message that is not whole yet
	blind   bool   // something came that cannot be read
}

func (e *events) see(b []byte) {
	for len(b) > 0 && !e.blind {
		if len(e.head) < headSize {
			n := min(headSize-len(e.head), len(b))
			e.head, b = append(e.head, b[:n]...), b[n:]
			if len(e.head) < headSize {
				return
			}
			size := binary.BigEndian.Uint32(e.head[1:])
			if size > maxMessage || e.head[0]&flagCompressed != 0 {
				e.blind = true
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

// printedHead reads the beginning of a large event of output in the binary
// codec, size bytes long in all: three fields, each of which is all that is in
// the one before. The rest is output, which need not be held until it is whole.
// Of all else the source is 0, and nothing was read.
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
			e.cmd.failed(known(end.Error.Code))
		}
	case flagTrailers:
		e.trailers(trailersOf(payload))
	case 0:
		e.event(payload)
	default:
		e.blind = true
	}
}

func (e *events) event(payload []byte) {
	if source, data, ok := e.decoder.Printed(payload); ok {
		e.cmd.printed(source, data)
		return
	}
	event, err := e.decoder.Event(payload)
	if err != nil {
		e.blind = true
		return
	}
	switch {
	case event.GetStart() != nil:
		e.cmd.runsAs(event.GetStart().GetPid())
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

// trailersOf reads the lines that gRPC-Web puts behind an answer.
func trailersOf(payload []byte) http.Header {
	h := http.Header{}
	for line := range strings.Lines(string(payload)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return h
}

// trailers are where gRPC says how a call ended.
func (e *events) trailers(h http.Header) {
	if code := grpcCode(h); code != "" {
		e.cmd.failed(code)
	}
}

// grpcCode is the code of a call that failed, or "".
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
		return known(code.String())
	}
}

// known returns a code of the wire, or a fixed one: root inside could send any text.
func known(code string) string {
	var c connect.Code
	if c.UnmarshalText([]byte(code)) != nil {
		return "unknown"
	}
	return c.String()
}
