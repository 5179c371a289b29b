package templatebuild

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/build/solve"
)

// Entry is one line of a build's log.
type Entry struct {
	Time    time.Time `json:"time"`
	Level   string    `json:"level"`
	Message string    `json:"message"`
}

// Limits of a log, so that the output of a command fills neither memory nor disk.
const (
	maxLogBytes = 4 << 20
	maxLine     = 8 << 10
)

// journal is the log of a build that has not ended. It is written to a file line by line, so that
// the log survives if the process dies.
type journal struct {
	mu      sync.Mutex
	file    *os.File
	entries []Entry
	size    int
	partial map[int]string // beginnings of incomplete output lines, by step
}

// logSuffix is the suffix of the log's file name, beside the record of its build.
const logSuffix = ".log"

// newJournal creates the log of a build.
func newJournal(dir, id string) (*journal, error) {
	f, err := os.OpenFile(filepath.Join(dir, id+logSuffix), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	return &journal{file: f, partial: map[int]string{}}, err
}

// readEntries reads the log of a build that has ended.
func readEntries(dir, id string) ([]Entry, error) {
	f, err := os.Open(filepath.Join(dir, id+logSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []Entry
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 8*maxLine) // JSON may write one byte as six
	for lines.Scan() {
		var e Entry
		if json.Unmarshal(lines.Bytes(), &e) == nil { // the last one may be cut
			list = append(list, e)
		}
	}
	return list, lines.Err()
}

func (j *journal) close() error { return j.file.Close() }

// from returns at most limit entries from an offset.
func (j *journal) from(offset, limit int) []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return page(j.entries, offset, limit)
}

// page returns at most limit entries of a list from an offset.
func page(list []Entry, offset, limit int) []Entry {
	if offset >= len(list) {
		return nil
	}
	return list[offset:min(len(list), offset+limit)]
}

// add adds an entry.
func (j *journal) add(level, message string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.write(level, message)
}

// write adds an entry, unless the log is full. The caller holds j.mu.
func (j *journal) write(level, message string) {
	message = strings.ToValidUTF8(message[:min(len(message), maxLine)], "\ufffd")
	if level == "info" {
		if j.size > maxLogBytes {
			return
		}
		if j.size += len(message) + len(time.RFC3339Nano); j.size > maxLogBytes {
			level, message = "warn", "the log is too long: later lines are omitted"
		}
	}
	e := Entry{Time: time.Now().UTC().Round(0), Level: level, Message: message}
	line, err := json.Marshal(e)
	if err == nil {
		_, _ = j.file.Write(append(line, '\n')) // the log in memory is complete
	}
	j.entries = append(j.entries, e)
}

// event adds an event of the build.
func (j *journal) event(e solve.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch e.Kind { // the error of a failed step is the last entry
	case solve.Started:
		j.write("info", e.Title)
	case solve.Cached:
		j.write("info", "  cached")
	case solve.Warning:
		j.write("warn", e.Text)
	case solve.Output:
		text := j.partial[e.Step] + e.Text
		for {
			line, rest, complete := strings.Cut(text, "\n")
			if !complete && len(line) < maxLine {
				break
			}
			if !complete {
				line, rest = line[:maxLine], line[maxLine:]
			}
			j.write("info", strings.TrimRight(line, "\r"))
			text = rest
		}
		j.partial[e.Step] = text
	case solve.Done, solve.Failed:
		if rest := j.partial[e.Step]; rest != "" {
			j.write("info", rest)
		}
		delete(j.partial, e.Step)
	}
}
