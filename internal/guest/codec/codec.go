// Package codec owns the JSON encoding of the guest services' messages and the options for serving
// them. Messages with the output of processes are the most frequent, so they are encoded without
// reflection. All others use the protobuf library.
package codec

import (
	"encoding/base64"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/utf8text"
)

// neverCompress exceeds the size of any message. The peer is on the same machine, where compression
// only costs time.
const neverCompress = 1 << 30

// Options returns the options for serving. A server that must parse requests exactly like the guest
// uses the same options. A message has at most limit bytes.
func Options(limit int) []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithReadMaxBytes(limit),
		connect.WithCompressMinBytes(neverCompress),
		connect.WithCodec(JSON{}),
	}
}

// JSON is the codec that clients request as "json".
type JSON struct{}

// Name returns the name of the codec in the protocol.
func (JSON) Name() string { return "json" }

// Marshal writes a message.
func (c JSON) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend appends a message to dst.
func (JSON) MarshalAppend(dst []byte, message any) ([]byte, error) {
	if name, data, ok := outputOf(message); ok {
		return appendData(dst, name, data), nil
	}
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a message", message)
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, m)
}

// Unmarshal parses a message. It ignores unknown fields, because newer clients may send them.
func (JSON) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a message", message)
	}
	if len(data) == 0 {
		return errors.New("an empty body is not a JSON object")
	}
	err := protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
	if err != nil {
		if which := utf8text.FindInvalid(data); which != "" {
			return fmt.Errorf("%s is not UTF-8", which)
		}
	}
	return err
}

// outputOf returns the output in a message that contains only output.
func outputOf(message any) (name string, data []byte, ok bool) {
	var event *pb.ProcessEvent
	switch m := message.(type) {
	case *pb.StartResponse:
		event = m.GetEvent()
	case *pb.ConnectResponse:
		event = m.GetEvent()
	default:
		return "", nil, false
	}
	switch out := event.GetData().GetOutput().(type) {
	case *pb.ProcessEvent_DataEvent_Stdout:
		return "stdout", out.Stdout, true
	case *pb.ProcessEvent_DataEvent_Stderr:
		return "stderr", out.Stderr, true
	case *pb.ProcessEvent_DataEvent_Pty:
		return "pty", out.Pty, true
	}
	return "", nil, false
}

// appendData appends a message that contains only output.
func appendData(dst []byte, name string, data []byte) []byte {
	dst = append(dst, `{"event":{"data":{"`...)
	dst = append(dst, name...)
	dst = append(dst, `":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, `"}}}`...)
}
