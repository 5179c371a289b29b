package observe

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/crannog/crannog/internal/guest/codec"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/utf8text"
)

// maxParts bounds the arguments and variables of a command together. An empty one takes two bytes
// of a request and many times that in memory, so they are counted before they are decoded.
const maxParts = 65_536

var errTooManyParts = fmt.Errorf("a command has at most %d arguments and variables", maxParts)

// countingCodecs contains the codecs under all names that the guest's services know.
func countingCodecs() []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithCodec(countedProto{}),
		connect.WithCodec(countedJSON{name: "json"}),
		// The library registers the codec under this name too.
		connect.WithCodec(countedJSON{name: "json; charset=utf-8"}),
	}
}

// countedJSON is the guest's codec with a bounded number of parts.
type countedJSON struct {
	codec.JSON
	name string
}

// Name implements connect.Codec.
func (c countedJSON) Name() string { return c.name }

// Unmarshal implements connect.Codec.
func (c countedJSON) Unmarshal(data []byte, message any) error {
	if _, ok := message.(*pb.StartRequest); ok && countCommas(data) >= maxParts {
		return errTooManyParts
	}
	return c.JSON.Unmarshal(data, message)
}

// countCommas counts commas outside of strings.
func countCommas(data []byte) int {
	n, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && c == ',':
			n++
		}
	}
	return n
}

// countedProto is the library's binary codec with a bounded number of parts.
type countedProto struct{}

var errNoMessage = errors.New("not a valid message")

// Name implements connect.Codec.
func (countedProto) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (countedProto) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	return proto.Marshal(m)
}

// Unmarshal implements connect.Codec.
func (countedProto) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return errNoMessage
	}
	if _, ok := message.(*pb.StartRequest); ok && countFields(data) > maxParts {
		return errTooManyParts
	}
	err := proto.Unmarshal(data, m)
	if _, ok := message.(*pb.StartRequest); ok && err != nil {
		if which := invalidText(data); which != "" {
			return fmt.Errorf("%s is not UTF-8", which)
		}
	}
	return err
}

// Fields of a command.
const (
	cmdField  = 1
	argsField = 2
	envsField = 3
	cwdField  = 4
)

// invalidText returns the first text of a command that is not UTF-8, or "". The library's error
// names only the field.
func invalidText(data []byte) (which string) {
	found := func(name string, value []byte) {
		if which == "" && !utf8.Valid(value) {
			which = name
		}
	}
	eachField(data, func(field protowire.Number, command []byte) {
		if field != processField {
			return
		}
		args := 0
		eachField(command, func(field protowire.Number, value []byte) {
			switch field {
			case cmdField:
				found("process.cmd", value)
			case argsField:
				found(fmt.Sprintf("process.args[%d]", args), value)
				args++
			case envsField:
				var name []byte
				eachField(value, func(field protowire.Number, text []byte) {
					if field == 1 {
						name = text
						found("process.envs (a name in it)", text)
					} else {
						found("process.envs."+utf8text.Valid(string(name)), text)
					}
				})
			case cwdField:
				found("process.cwd", value)
			default:
			}
		})
	})
	return which
}

// processField is the field of a StartRequest with the command. There may be several, which are
// merged.
const processField = 1

// countFields counts the fields of a StartRequest and of its command.
func countFields(data []byte) int {
	n := 0
	eachField(data, func(field protowire.Number, value []byte) {
		n++
		if field == processField {
			eachField(value, func(protowire.Number, []byte) { n++ })
		}
	})
	return n
}

// eachField calls do for each field, with its bytes if it has any. It stops at malformed data,
// which the decoder refuses.
func eachField(data []byte, do func(field protowire.Number, value []byte)) {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return
		}
		data = data[n:]
		var value []byte
		if kind == protowire.BytesType {
			value, n = protowire.ConsumeBytes(data)
		} else {
			n = protowire.ConsumeFieldValue(field, kind, data)
		}
		if n < 0 {
			return
		}
		do(field, value)
		data = data[n:]
	}
}
