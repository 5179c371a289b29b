package redaction

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/guest/codec"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
)

const (
	// maxEvent bounds one event, which is held in memory: the guest's have 32 KiB.
	maxEvent = 4 << 20
	// eventBuffer is the size of the read buffer, so that many small events are passed on at once.
	eventBuffer = 16 << 10
	// batch bounds the redacted output that is collected from available events.
	batch = 32 << 10
)

// output is one of a process's streams, by its number in events.
type output int

const (
	stdout output = 1
	stderr output = 2
	pty    output = 3
)

func (o output) String() string {
	switch o {
	case stdout:
		return "stdout"
	case stderr:
		return "stderr"
	case pty:
		return "pty"
	}
	return ""
}

// eventReader redacts a process's output. Each stream is redacted as one sequence of bytes, so that
// a value is found even if it is split between events.
type eventReader struct {
	messages messages
	json     bool
	decoder  Decoder
	redactor func() *redact.Redactor
	streams  [pty + 1]*stream
	bytes    []byte // redacted bytes for the next event
	pending
}

func newEvents(source io.Reader, json bool, redactor func() *redact.Redactor) *eventReader {
	return &eventReader{
		messages: messages{source: bufio.NewReaderSize(source, eventBuffer), limit: maxEvent},
		json:     json, decoder: Decoder{JSON: json}, redactor: redactor,
	}
}

// Read returns complete events first, and held output as soon as it is decided.
func (r *eventReader) Read(b []byte) (int, error) { return r.read(b, r.fill) }

func (r *eventReader) fill() {
	for {
		flags, payload, err := r.messages.next()
		switch {
		case err != nil:
			if errors.Is(err, io.EOF) {
				r.release()
			}
		case flags == 0:
			err = r.event(payload)
		case flags == flagEnd || flags == flagTrailers:
			r.release()
			r.frame(flags, maskJSON(payload, r.redactor()))
		default:
			err = unreadable("is compressed although the request did not ask for it")
		}
		if r.err = err; err != nil || len(r.out) >= batch || !r.messages.ready() {
			return
		}
	}
}

// frame appends a message.
func (r *eventReader) frame(flags byte, payload []byte) {
	r.out = binary.BigEndian.AppendUint32(append(r.out, flags), uint32(len(payload)))
	r.out = append(r.out, payload...)
}

// event redacts one event. Nearly all events are output in the encoding that the guest writes.
func (r *eventReader) event(payload []byte) error {
	if from, data, ok := r.decoder.Printed(payload); ok {
		r.print(output(from), data)
		return nil
	}
	event, err := r.decoder.Event(payload)
	if err != nil {
		return err
	}
	m := &pb.StartResponse{Event: event}
	switch e := event.GetEvent().(type) {
	case *pb.ProcessEvent_Data:
		switch out := e.Data.GetOutput().(type) {
		case *pb.ProcessEvent_DataEvent_Stdout:
			r.print(stdout, out.Stdout)
			return nil
		case *pb.ProcessEvent_DataEvent_Stderr:
			r.print(stderr, out.Stderr)
			return nil
		case *pb.ProcessEvent_DataEvent_Pty:
			r.print(pty, out.Pty)
			return nil
		}
	case *pb.ProcessEvent_End:
		r.release()
		e.End.Status = r.redactor().String(e.End.GetStatus())
		if e.End.Error != nil {
			*e.End.Error = r.redactor().String(*e.End.Error)
		}
	}
	head := len(r.out)
	r.out = append(r.out, 0, 0, 0, 0, 0)
	if r.json {
		r.out, err = codec.JSON{}.MarshalAppend(r.out, m)
	} else {
		r.out, err = proto.MarshalOptions{}.MarshalAppend(r.out, m)
	}
	if err != nil {
		r.out = r.out[:head]
		return unreadable("is not an event of a process")
	}
	binary.BigEndian.PutUint32(r.out[head+1:], uint32(len(r.out)-head-frameHead))
	return nil
}

// print redacts output. If all of it is held back, no event is written.
func (r *eventReader) print(from output, data []byte) {
	s := r.streams[from]
	if s == nil {
		s = &stream{redactor: r.redactor}
		r.streams[from] = s
	}
	r.bytes = s.append(r.bytes[:0], data)
	if len(r.bytes) > 0 || len(data) == 0 {
		r.data(from, r.bytes)
	}
}

// release writes output that was held back, because nothing follows that could complete a value.
func (r *eventReader) release() {
	for from, s := range r.streams {
		if s == nil {
			continue
		}
		if r.bytes = s.end(r.bytes[:0]); len(r.bytes) > 0 {
			r.data(output(from), r.bytes)
		}
	}
}

// data appends an output event.
func (r *eventReader) data(from output, data []byte) {
	head := len(r.out)
	r.out = append(r.out, 0, 0, 0, 0, 0)
	if r.json {
		r.out = append(append(append(r.out, dataPrefix...), from.String()...), dataMiddle...)
		r.out = append(base64.StdEncoding.AppendEncode(r.out, data), dataSuffix...)
	} else {
		field := protowire.SizeTag(protowire.Number(from)) + protowire.SizeBytes(len(data))
		r.out = protowire.AppendTag(r.out, 1, protowire.BytesType)
		r.out = protowire.AppendVarint(r.out, uint64(protowire.SizeTag(2)+protowire.SizeBytes(field)))
		r.out = protowire.AppendTag(r.out, 2, protowire.BytesType)
		r.out = protowire.AppendVarint(r.out, uint64(field))
		r.out = protowire.AppendTag(r.out, protowire.Number(from), protowire.BytesType)
		r.out = protowire.AppendBytes(r.out, data)
	}
	binary.BigEndian.PutUint32(r.out[head+1:], uint32(len(r.out)-head-frameHead))
}
