package observe

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/ingress/redaction"
	fspb "github.com/crannog/crannog/internal/guest/gen/filesystempb"
)

// Actions of entries about files that are changed without a transfer of content.
const (
	actionMakeDir = "file.mkdir"
	actionMove    = "file.move"
	actionRemove  = "file.remove"
	actionCompose = "file.compose"
)

// filesystemPath is the service whose changes are parsed.
const filesystemPath = "/filesystem.Filesystem/"

// composePath is where files are joined.
const composePath = "/files/compose"

// maxCompose is the guest's limit for a request to join files.
const maxCompose = 1 << 20

// changesFiles reports whether a call changes files. Reads have no entries.
func changesFiles(where string) bool {
	switch where {
	case filesystemPath + "MakeDir", filesystemPath + "Move", filesystemPath + "Remove":
		return true
	}
	return false
}

// observeChange observes a call that changes files. It refuses an unparsable request with the same
// error as the guest.
func (t *Tap) observeChange(r *http.Request, c Call, where string) (*Visit, *refusal) {
	var data *FileChange
	mask := c.Mask.Record()
	answer := t.decode(r, where, &decoding{take: func(message any, header http.Header) error {
		data = &FileChange{User: short(userOf(header), mask)}
		switch m := message.(type) {
		case *fspb.MakeDirRequest:
			data.Do, data.Path = actionMakeDir, short(m.GetPath(), mask)
		case *fspb.MoveRequest:
			data.Do, data.Path, data.To = actionMove, short(m.GetSource(), mask), short(m.GetDestination(), mask)
		case *fspb.RemoveRequest:
			data.Do, data.Path = actionRemove, short(m.GetPath(), mask)
		}
		return nil
	}})
	if data == nil || data.Do == "" {
		return nil, answer.refusal(fault.New(fault.Invalid, "call_unreadable", "the request to change files cannot be read"))
	}
	// A compressed answer could not be parsed.
	for _, name := range []string{"Connect-Accept-Encoding", "Grpc-Accept-Encoding", "Accept-Encoding"} {
		r.Header.Del(name)
	}
	return (&pendingChange{tap: t, call: c, data: *data}).visit(), nil
}

// compose observes a request to join files. It parses the request by the guest's rules. A request
// that the guest would reject is passed on, so that the guest rejects it.
func (t *Tap) compose(r *http.Request, c Call) (*Visit, *refusal) {
	var read bytes.Buffer
	// An incomplete request is incomplete for the guest too.
	_, _ = io.Copy(&read, io.LimitReader(r.Body, maxCompose))
	var in struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		Username    string   `json:"username"`
	}
	err := json.NewDecoder(bytes.NewReader(read.Bytes())).Decode(&in)
	restoreBody(r, &read)
	if err != nil {
		return nil, nil
	}
	mask := c.Mask.Record()
	data := FileChange{Do: actionCompose, To: short(in.Destination, mask), User: short(in.Username, mask)}
	data.From, data.Cut = boundedAll(in.Sources, mask)
	return (&pendingChange{tap: t, call: c, data: data}).visit(), nil
}

// pendingChange is one change of files in progress.
type pendingChange struct {
	tap  *Tap
	call Call
	data FileChange
	once sync.Once
	err  error
}

func (m *pendingChange) visit() *Visit {
	return &Visit{answer: m.answer, done: func() { _ = m.note("", true) }} // the client has left, so it gets no error
}

// note writes the entry about the change, once.
func (m *pendingChange) note(outcome string, lost bool) error {
	m.once.Do(func() {
		m.data.Outcome, m.data.Lost = outcome, lost
		d := audit.Draft{Kind: audit.Action, Sandbox: m.call.Sandbox, Actor: m.call.Actor, Data: m.data}
		if m.err = m.tap.Audit.Note(d); m.err != nil {
			m.tap.Log.Error("entry not recorded", "sandbox", d.Sandbox, "kind", string(d.Kind), "err", m.err)
		}
	})
	return m.err
}

// maxChangeResponse bounds the answer to a change, which describes one file.
const maxChangeResponse = 1 << 20

// answer parses the result of a change. If the audit log refuses the entry, the caller gets an
// error.
func (m *pendingChange) answer(res *http.Response) error {
	var body bytes.Buffer
	_, err := io.Copy(&body, io.LimitReader(res.Body, maxChangeResponse))
	res.Body = partlyRead{io.MultiReader(bytes.NewReader(body.Bytes()), res.Body), res.Body}
	lost := err != nil
	if err := m.note(changeOutcome(res, body.Bytes()), lost); err != nil {
		return unrecorded(err).err
	}
	return nil
}

// changeOutcome returns ok, a Connect error code, or http_ and a status.
func changeOutcome(res *http.Response, body []byte) string {
	if res.StatusCode != http.StatusOK {
		var answer struct {
			Code string `json:"code"`
		}
		if json.Unmarshal(body, &answer) == nil && knownCode(answer.Code) == answer.Code {
			return answer.Code
		}
		return fmt.Sprintf("http_%d", res.StatusCode)
	}
	if _, framed := redaction.Framed(res.Header.Get("Content-Type")); !framed {
		return "ok"
	}
	if code := grpcCode(res.Header); code != "" {
		return code
	}
	for len(body) >= headSize {
		size := binary.BigEndian.Uint32(body[1:])
		if uint64(size) > uint64(len(body)-headSize) {
			return "unreadable"
		}
		if body[0] == flagTrailers {
			if code := grpcCode(trailersOf(body[headSize : headSize+int(size)])); code != "" {
				return code
			}
		}
		body = body[headSize+int(size):]
	}
	// HTTP trailers are available once the body was read to its end.
	if code := grpcCode(res.Trailer); code != "" {
		return code
	}
	return "ok"
}
