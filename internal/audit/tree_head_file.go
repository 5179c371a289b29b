package audit

import (
	"bytes"
	"encoding/json"
	"os"
)

// storedTreeHead is a stored tree head: one line of JSON.
type storedTreeHead struct {
	Note string `json:"note"`
}

// store appends a tree head to the file of tree heads.
func (l *Log) store(c Checkpoint) (err error) {
	line, err := json.Marshal(storedTreeHead{c.Note})
	if err != nil {
		return err
	}
	f, err := openAt(l.path(checkpointsName), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	// A crash may have left a partial line, which is overwritten.
	_, end, err := lastLine(f)
	if err != nil {
		return err
	}
	if end > maxCheckpoints {
		return l.thin(line)
	}
	if _, err := f.WriteAt(append(line, '\n'), end); err != nil {
		_ = f.Truncate(end) // the next write overwrites a partial line in any case
		return err
	}
	return datasync(f)
}

// thin rewrites the file without every second tree head of the older half, and appends another one.
func (l *Log) thin(last []byte) error {
	data, err := os.ReadFile(l.path(checkpointsName))
	if err != nil {
		return err
	}
	// Skip a partial line that a crash left. Together with the next line it would be a line without
	// a valid signature.
	all := bytes.SplitAfter(data[:bytes.LastIndexByte(data, '\n')+1], []byte("\n"))
	var out bytes.Buffer
	for i, line := range all {
		if i%2 == 0 || i > len(all)/2 {
			out.Write(line)
		}
	}
	out.Write(append(last, '\n'))
	return replaceFile(l.path(checkpointsName), out.Bytes())
}

// lastCheckpoint returns the newest stored tree head, or one without a note if there is none.
func (l *Log) lastCheckpoint() (Checkpoint, error) {
	f, err := openAt(l.path(checkpointsName), os.O_RDONLY)
	if os.IsNotExist(err) {
		return Checkpoint{}, nil
	}
	if err != nil {
		return Checkpoint{}, err
	}
	defer f.Close()
	line, _, err := lastLine(f)
	if err != nil || line == nil {
		return Checkpoint{}, err
	}
	var k storedTreeHead
	if err := json.Unmarshal(line, &k); err != nil {
		return Checkpoint{}, damageError("the last signed tree head cannot be read: %v", err)
	}
	c, _, err := openCheckpoint(k.Note, l.verifier)
	return c, err
}

// storedNotes returns the tree heads that are stored in the log itself.
func (l *Log) storedNotes() ([]string, error) {
	data, err := os.ReadFile(l.path(checkpointsName))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if end := bytes.LastIndexByte(data, '\n'); err == nil && end+1 < len(data) {
		data = data[:end+1] // a crash left part of a line
	}
	var out []string
	for line := range bytes.Lines(data) {
		var k storedTreeHead
		if err := json.Unmarshal(line, &k); err != nil {
			k.Note = "" // has no valid signature
		}
		out = append(out, k.Note)
	}
	return out, err
}
