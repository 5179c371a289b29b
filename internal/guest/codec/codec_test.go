package codec_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/crannog/crannog/internal/guest/codec"
	fspb "github.com/crannog/crannog/internal/guest/gen/filesystempb"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
)

// data returns an event with output.
func data(e *pb.ProcessEvent_DataEvent) *pb.ProcessEvent {
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: e}}
}

// messages returns one message of each form, with the given output.
func messages(out []byte) []proto.Message {
	stdout := data(&pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stdout{Stdout: out}})
	stderr := data(&pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stderr{Stderr: out}})
	tty := data(&pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Pty{Pty: out}})
	end := &pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: &pb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: killed"}}}
	return []proto.Message{
		&pb.StartResponse{Event: stdout}, &pb.StartResponse{Event: stderr}, &pb.StartResponse{Event: tty},
		&pb.ConnectResponse{Event: stdout}, &pb.StartResponse{Event: end}, &pb.StartResponse{},
		&pb.StartResponse{Event: data(&pb.ProcessEvent_DataEvent{})}, &fspb.EntryInfo{Name: "x", Size: 1 << 60},
	}
}

// The protobuf library decodes the same message from the encoded bytes, also if dst was not empty.
func TestMarshalRoundTrip(t *testing.T) {
	for _, out := range [][]byte{nil, {}, []byte("x"), []byte("hi\n"), bytes.Repeat([]byte{0, 0xff, '"', '\\'}, 10_000)} {
		for _, m := range messages(out) {
			got, err := codec.JSON{}.MarshalAppend([]byte("before"), m)
			if err != nil || !bytes.HasPrefix(got, []byte("before")) {
				t.Fatal(err)
			}
			back := m.ProtoReflect().New().Interface()
			if err := protojson.Unmarshal(got[len("before"):], back); err != nil || !proto.Equal(m, back) {
				t.Errorf("decoding %.100s: got another message, %v", got, err)
			}
			again := m.ProtoReflect().New().Interface()
			if err := (codec.JSON{}).Unmarshal(got[len("before"):], again); err != nil || !proto.Equal(m, again) {
				t.Errorf("Unmarshal of %.100s: %v", got, err)
			}
		}
	}
}

func TestUnmarshalIgnoresUnknownFields(t *testing.T) {
	var req pb.StartRequest
	if err := (codec.JSON{}).Unmarshal([]byte(`{"tag":"t","later":{"x":[1]}}`), &req); err != nil || req.GetTag() != "t" {
		t.Errorf("Unmarshal with an unknown field: got %v, %v, want the tag t", &req, err)
	}
	for _, bad := range []string{"", "null x", "[]", `{"tag":1}`} {
		if err := (codec.JSON{}).Unmarshal([]byte(bad), &req); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if err := (codec.JSON{}).Unmarshal([]byte("{}"), 1); err == nil {
		t.Error("a number was accepted as a message")
	}
	if _, err := (codec.JSON{}).Marshal(1); err == nil {
		t.Error("a number was accepted as a message")
	}
}

func BenchmarkMarshal(b *testing.B) {
	m := messages(make([]byte, 32<<10))[0]
	for name, marshal := range map[string]func() ([]byte, error){
		"codec":   func() ([]byte, error) { return codec.JSON{}.Marshal(m) },
		"library": func() ([]byte, error) { return protojson.Marshal(m) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(32 << 10)
			for b.Loop() {
				if _, err := marshal(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
