package guestwire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/crannog/crannog/internal/fault"
)

// codec is the protobuf codec with a limit on memory. An element of a list takes two bytes on the
// wire and a hundred times as many in memory. With a limit of bytes alone, a hostile guest could
// fill the memory. The codec counts elements before it decodes a message.
type codec struct{ bounds Bounds }

// Name returns the name of the codec in the protocol.
func (codec) Name() string { return "proto" }

// Marshal writes a message.
func (c codec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend appends a message to dst.
func (codec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a message", message)
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// Unmarshal decodes a message within the limits. It ignores unknown fields, because newer guests
// may send them.
func (c codec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a message", message)
	}
	data, err := c.bounds.fit(data, m.ProtoReflect().Descriptor())
	if err != nil {
		return err
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
}

// fit returns the part of a message that may be decoded, or an error if the message is too large.
func (b Bounds) fit(data []byte, d protoreflect.MessageDescriptor) ([]byte, error) {
	items, within := b.Items, b.Within
	for at := 0; at < len(data); {
		f, value, n := next(data[at:], d)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if f != nil && (f.IsList() || f.IsMap()) {
			if items--; items < 0 && b.Cut {
				return data[:at], nil
			}
			if items < 0 {
				return nil, tooLarge(b.Items)
			}
		}
		if err := b.countBelow(f, value, &within); err != nil {
			return nil, err
		}
		at += n
	}
	return data, nil
}

// countBelow counts the elements of lists and maps in a field against within. It does not count
// single messages: if a single message is repeated, only the last one is stored.
func (b Bounds) countBelow(f protoreflect.FieldDescriptor, value []byte, within *int) error {
	if f == nil || f.Message() == nil || f.IsMap() {
		return nil
	}
	for len(value) > 0 {
		inner, v, n := next(value, f.Message())
		if n < 0 {
			return protowire.ParseError(n)
		}
		if inner != nil && (inner.IsList() || inner.IsMap()) {
			if *within--; *within < 0 {
				return tooLarge(b.Within)
			}
		}
		if err := b.countBelow(inner, v, within); err != nil {
			return err
		}
		value = value[n:]
	}
	return nil
}

// next parses a field. It returns the field's descriptor (nil if unknown), its content if it has a
// length, and its total length, which is negative if the field is malformed.
func next(data []byte, d protoreflect.MessageDescriptor) (protoreflect.FieldDescriptor, []byte, int) {
	number, kind, tag := protowire.ConsumeTag(data)
	if tag < 0 {
		return nil, nil, tag
	}
	f := d.Fields().ByNumber(number)
	if kind == protowire.BytesType {
		value, n := protowire.ConsumeBytes(data[tag:])
		if n < 0 {
			return nil, nil, n
		}
		return f, value, tag + n
	}
	n := protowire.ConsumeFieldValue(number, kind, data[tag:])
	if n < 0 {
		return nil, nil, n
	}
	return f, nil, tag + n
}

// tooLarge returns the fault for a message with too many elements.
func tooLarge(limit int) error {
	return fault.Newf(fault.Exhausted, "answer_too_large", "the sandbox's answer has more than %d list elements", limit)
}
