package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
)

const (
	// maxRecords is the maximum size of a sandbox's flow file. A sandbox that fills it loses its
	// network, so that it cannot fill the host's disk.
	maxRecords = 64 << 20
	// maxRecord is far above the size of an entry with its limited fields.
	maxRecord = 256 << 10
	// lastPart is how much of a file is read to find its last entry.
	lastPart = 4 * maxRecord
)

// openRecords opens the caller's flow file for the process: append-only, and ending with a complete
// line. It also returns the number of the last entry.
func openRecords(file *os.File) (*os.File, uint64, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, 0, err
	}
	var path string
	if err := raw.Control(func(fd uintptr) { path = fmt.Sprintf("/proc/self/fd/%d", fd) }); err != nil {
		return nil, 0, err
	}
	readWrite, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, 0, err
	}
	defer readWrite.Close()
	seq, err := repair(readWrite)
	if err != nil {
		return nil, 0, fmt.Errorf("record file: %w", err)
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	return out, seq, err
}

// repair removes an incomplete last line that a crash left, and returns the number of the last
// entry.
func repair(file *os.File) (uint64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, errors.New("not a regular file")
	}
	start := max(0, info.Size()-lastPart)
	data := make([]byte, info.Size()-start)
	if _, err := file.ReadAt(data, start); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	end := bytes.LastIndexByte(data, '\n') + 1
	if end < len(data) {
		if end == 0 && start > 0 {
			return 0, errors.New("the file ends with data that is not an entry")
		}
		if err := file.Truncate(start + int64(end)); err != nil {
			return 0, err
		}
	}
	if end == 0 {
		return 0, nil
	}
	line := data[bytes.LastIndexByte(data[:end-1], '\n')+1 : end]
	var last egress.Record
	if err := json.Unmarshal(line, &last); err != nil || last.Seq == 0 {
		return 0, errors.New("the last line of the file is not an entry")
	}
	return last.Seq, nil
}

// recorder writes the flow entries of one sandbox. It is safe for concurrent use.
type recorder struct {
	sandbox string
	file    *os.File

	mu        sync.Mutex
	seq       uint64
	size      int64
	unwritten []byte // the rest of a line that was written in part
	closed    bool
	refused   uint64
	sent      int64
	received  int64
	uses      map[string]int64

	syncMu sync.Mutex // taken before mu
	synced uint64     // number of the last entry that is synced to the disk
}

// newRecorder takes ownership of the file, which must be append-only. Otherwise an attacker who
// takes this process over could change earlier entries.
func newRecorder(sandbox string, file *os.File, seq uint64) (*recorder, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var flags int
	controlErr := raw.Control(func(fd uintptr) { flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0) })
	info, statErr := file.Stat()
	if err := errors.Join(controlErr, err, statErr); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || flags&unix.O_ACCMODE != unix.O_WRONLY || flags&unix.O_APPEND == 0 {
		return nil, fault.New(fault.Invalid, "record_file", "the flow file is not a regular file opened for appending only")
	}
	return &recorder{sandbox: sandbox, file: file, seq: seq, size: info.Size(), uses: map[string]int64{}}, nil
}

// Record implements egress.Recorder. It sets the number and the sandbox itself, so that a caller
// cannot write entries of another sandbox.
func (r *recorder) Record(rec egress.Record) error {
	seq, err := r.append(rec)
	if err != nil || !requiresSync(rec) {
		return err
	}
	return r.waitSynced(seq)
}

// requiresSync reports whether an entry must be on the disk before its action happens: a use of a
// secret, an approved action, or an irreversible publication.
func requiresSync(rec egress.Record) bool {
	return rec.Begins && (len(rec.Secrets) > 0 || rec.Approval != "" || rec.Kind == egress.KindPublish || rec.Kind == egress.KindGit)
}

// waitSynced waits until an entry is on the disk. Entries that arrive during a sync share the next
// one.
func (r *recorder) waitSynced(seq uint64) error {
	r.syncMu.Lock()
	defer r.syncMu.Unlock()
	if r.synced >= seq {
		return nil
	}
	r.mu.Lock()
	written := r.seq
	r.mu.Unlock()
	raw, err := r.file.SyscallConn()
	if err == nil {
		var syncErr error
		err = raw.Control(func(fd uintptr) {
			for syncErr = unix.EINTR; errors.Is(syncErr, unix.EINTR); {
				syncErr = unix.Fdatasync(int(fd))
			}
		})
		err = errors.Join(err, syncErr)
	}
	if err != nil {
		return notRecorded(err)
	}
	r.synced = written
	return nil
}

func notRecorded(err error) error {
	return fault.Wrap(err, fault.Unavailable, "records_not_kept", "the sandbox's network log cannot be written, so nothing is let out").
		WithHint("check the disk of the state directory")
}

// append writes one entry and returns its number.
func (r *recorder) append(rec egress.Record) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, fault.New(fault.Unavailable, "records_closed", "the sandbox's network is gone")
	}
	rec.Sandbox, rec.Seq = r.sandbox, r.seq+1
	line, err := json.Marshal(rec)
	if err != nil {
		return 0, fmt.Errorf("record: %w", err)
	}
	line = append(line, '\n')
	if len(line) > maxRecord {
		return 0, fault.New(fault.Internal, "record_too_long", "a flow entry is longer than its fields may be")
	}
	if r.size+int64(len(r.unwritten)+len(line)) > maxRecords {
		return 0, fault.New(fault.Exhausted, "records_full", "the sandbox's network log has reached its greatest size").
			WithHint("nothing more is let out of this sandbox; create it again")
	}
	// First write the rest of the previous line. Otherwise neither line could be read.
	if len(r.unwritten) > 0 {
		if _, err := r.write(r.unwritten); err != nil {
			return 0, err
		}
	}
	n, err := r.write(line)
	if n > 0 {
		r.seq++
	}
	if err != nil {
		return 0, err
	}
	r.count(rec)
	return r.seq, nil
}

// write writes data. If only a part is written, it keeps the rest. mu must be held.
func (r *recorder) write(data []byte) (int, error) {
	n, err := r.file.Write(data)
	r.size += int64(n)
	if err == nil {
		r.unwritten = nil
		return n, nil
	}
	if n > 0 {
		r.unwritten = append([]byte(nil), data[n:]...)
	}
	return n, notRecorded(err)
}

// count updates the totals of Status. An action with an entry at its beginning has another one at
// its end, which has all figures. mu must be held.
func (r *recorder) count(rec egress.Record) {
	if rec.Begins {
		return
	}
	r.sent += rec.Sent
	r.received += rec.Received
	if rec.Effect == egress.Deny {
		r.refused++
	}
	for _, name := range rec.Secrets {
		r.uses[name]++
	}
}

func (r *recorder) fill(s *Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Records, s.Refused, s.Sent, s.Received, s.Uses = r.seq, r.refused, r.sent, r.received, maps.Clone(r.uses)
}

// close closes the file. Flows that end later are not recorded.
func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.file.Close()
	}
}
