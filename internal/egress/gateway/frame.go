package gateway

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

const (
	// maxFrame is enough for a policy of some thousand rules with its secrets.
	maxFrame = 8 << 20
	// maxFiles is the maximum number of files in a frame: an attachment's descriptor and a flow
	// file.
	maxFiles = 2
)

// frame is one message. A request has ID and Call, its reply has only the same ID, and a notice has
// only Call.
type frame struct {
	ID    uint64          `json:"id,omitempty"`
	Call  string          `json:"call,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
	Error *wireFault      `json:"error,omitempty"`

	files []*os.File
}

// wireFault is a classified error in the protocol.
type wireFault struct {
	Kind fault.Kind `json:"kind"`
	Code string     `json:"code"`
	Text string     `json:"text"`
	Hint string     `json:"hint,omitempty"`
}

// toWire converts an error for the protocol. It includes the cause of an internal error, because
// both ends are Crannog's and the cause belongs in the controller's log.
func toWire(err error) *wireFault {
	w := &wireFault{Kind: fault.KindOf(err), Code: fault.CodeOf(err), Text: fault.PublicText(err), Hint: fault.HintOf(err)}
	if w.Kind == fault.Internal {
		w.Text = err.Error()
	}
	return w
}

func (w *wireFault) fault() error {
	if w.Kind == fault.Internal {
		return fmt.Errorf("causeway: %s", w.Text)
	}
	return fault.New(w.Kind, w.Code, w.Text).WithHint(w.Hint)
}

func (f *frame) closeFiles() {
	for _, file := range f.files {
		file.Close()
	}
	f.files = nil
}

// strict decodes a message and rejects unknown fields, which may request something that this
// version does not support.
func strict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data follows the message")
	}
	return nil
}

// encode encodes a message, preceded by its length.
func encode(f *frame) ([]byte, error) {
	data, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	if len(data) > maxFrame {
		return nil, fault.New(fault.Exhausted, "causeway_message", "a policy with its secrets and lockfiles is larger than the egress gateway accepts")
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, len(data)+4), uint32(len(data))), data...), nil
}

// decode parses a message of known length.
func decode(data []byte) (*frame, error) {
	f := &frame{}
	if err := strict(data, f); err != nil {
		return nil, err
	}
	switch {
	case f.ID == 0 && f.Call == "":
		return nil, errors.New("neither request nor reply")
	case f.Call != "" && f.Error != nil:
		return nil, errors.New("a request with an error")
	}
	return f, nil
}

// writeFrame writes a frame. It sends the files with the first byte.
func writeFrame(c *net.UnixConn, data []byte, files []*os.File) error {
	return withDescriptors(files, nil, func(fds []int) error {
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		n, _, err := c.WriteMsgUnix(data, rights, nil)
		if err == nil && n < len(data) {
			_, err = c.Write(data[n:])
		}
		return err
	})
}

// withDescriptors calls do with the files' descriptors while the files are open. File.Fd would
// switch them to blocking mode, also for the receiver.
func withDescriptors(files []*os.File, fds []int, do func([]int) error) error {
	if len(files) == 0 {
		return do(fds)
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = withDescriptors(files[1:], append(fds, int(fd)), do) })
	return errors.Join(controlErr, err)
}

// reader reads frames. With takes it also accepts files; otherwise the kernel discards them.
type reader struct {
	conn  *net.UnixConn
	takes bool
}

// next returns the next frame, whose files the caller must close.
func (r *reader) next() (f *frame, err error) {
	var files []*os.File
	defer func() {
		if err != nil {
			for _, file := range files {
				file.Close()
			}
		}
	}()
	var head [4]byte
	if err := r.fill(head[:], &files); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxFrame {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	// The buffer grows as data arrives. Otherwise a length of four bytes would allocate eight
	// megabytes.
	var data bytes.Buffer
	for left := int(size); left > 0; {
		piece := make([]byte, min(left, 64<<10))
		if err := r.fill(piece, &files); err != nil {
			return nil, errors.Join(io.ErrUnexpectedEOF, err)
		}
		data.Write(piece)
		left -= len(piece)
	}
	if f, err = decode(data.Bytes()); err != nil {
		return nil, err
	}
	f.files = files
	return f, nil
}

// fill reads exactly len(b) bytes, so that it gets neither data nor files of the next frame.
func (r *reader) fill(b []byte, files *[]*os.File) error {
	if !r.takes {
		_, err := io.ReadFull(r.conn, b)
		return err
	}
	for len(b) > 0 {
		rights := make([]byte, unix.CmsgSpace(4*maxFiles))
		n, rightsLen, flags, _, err := r.conn.ReadMsgUnix(b, rights)
		if got := parseRights(rights[:rightsLen]); len(got) > 0 {
			*files = append(*files, got...)
		}
		switch {
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		case flags&unix.MSG_CTRUNC != 0 || len(*files) > maxFiles:
			return errors.New("more files than a message has")
		}
		b = b[n:]
	}
	return nil
}

func parseRights(data []byte) []*os.File {
	messages, err := unix.ParseSocketControlMessage(data)
	if err != nil {
		return nil
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files
}
