package redaction

import (
	"encoding/base64"
	"mime"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/crannog/crannog/internal/guest/codec"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
)

// Decoder parses messages with the events of a process.
type Decoder struct {
	JSON    bool // whether messages are JSON; otherwise they are protobuf
	decoded []byte
}

// Framed reports whether an answer of the guest's services consists of length-prefixed messages, by
// its Content-Type, and whether those are JSON.
func Framed(contentType string) (json, ok bool) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false, false
	}
	codec, ok := framed(kind)
	return codec == eventsJSON, ok
}

// Event parses a message.
func (d *Decoder) Event(message []byte) (*pb.ProcessEvent, error) {
	m := &pb.StartResponse{}
	var err error
	if d.JSON {
		err = codec.JSON{}.Unmarshal(message, m)
	} else {
		err = proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(message, m)
	}
	if err != nil {
		return nil, unreadable("is not an event of a process")
	}
	return m.GetEvent(), nil
}

const (
	dataPrefix = `{"event":{"data":{"`
	dataMiddle = `":"`
	dataSuffix = `"}}}`
)

var outputNames = map[string]output{"stdout": stdout, "stderr": stderr, "pty": pty}

// Printed parses an output event in the encoding that our guest writes: from is 1 for standard
// output, 2 for standard error and 3 for a terminal. The data is valid until the next call. For
// other messages ok is false.
func (d *Decoder) Printed(message []byte) (from int, data []byte, ok bool) {
	if d.JSON {
		return d.printedJSON(message)
	}
	event, ok := onlyField(message, 1)
	if ok {
		data, ok = onlyField(event, 2)
	}
	if !ok {
		return 0, nil, false
	}
	for from = int(stdout); from <= int(pty); from++ {
		if out, ok := onlyField(data, protowire.Number(from)); ok {
			return from, out, true
		}
	}
	return 0, nil, false
}

// onlyField returns the bytes of a field that is the only content of a message.
func onlyField(message []byte, field protowire.Number) ([]byte, bool) {
	number, kind, n := protowire.ConsumeTag(message)
	if n < 0 || number != field || kind != protowire.BytesType {
		return nil, false
	}
	value, m := protowire.ConsumeBytes(message[n:])
	return value, m >= 0 && n+m == len(message)
}

func (d *Decoder) printedJSON(message []byte) (from int, data []byte, ok bool) {
	if len(message) < len(dataPrefix)+len(dataSuffix) || string(message[:len(dataPrefix)]) != dataPrefix ||
		string(message[len(message)-len(dataSuffix):]) != dataSuffix {
		return 0, nil, false
	}
	rest := message[len(dataPrefix) : len(message)-len(dataSuffix)]
	for name, o := range outputNames {
		if len(rest) >= len(name)+len(dataMiddle) && string(rest[:len(name)]) == name && string(rest[len(name):len(name)+len(dataMiddle)]) == dataMiddle {
			var err error
			d.decoded, err = base64.StdEncoding.AppendDecode(d.decoded[:0], rest[len(name)+len(dataMiddle):])
			return int(o), d.decoded, err == nil
		}
	}
	return 0, nil, false
}
