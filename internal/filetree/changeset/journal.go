package changeset

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// journal records the progress of an Apply, so that a later one can complete or undo it after a
// crash. It consists of lines, of which the last may be incomplete. The process that locks the
// journal has exclusive use of the directory.
type journal struct {
	file  *os.File
	dir   *os.File
	base  string
	path  string // current path of the directory
	lines []record
}

// record is a line of a journal. Exactly one of its fields is set.
type record struct {
	// Path and Ino identify the directory, in the first line.
	Path  string     `json:"path,omitempty"`
	Ino   uint64     `json:"ino,omitempty"`
	Begin *beginning `json:"begin,omitempty"`
	// Ops are the operations that follow.
	Ops  []op      `json:"ops,omitempty"`
	Dirs []dirTime `json:"dirs,omitempty"`
	// Done is set after all operations. They are no longer undone.
	Done bool `json:"done,omitempty"`
	// Undone is set after an undo.
	Undone bool `json:"undone,omitempty"`
}

// beginning names the stage, which is the directory for new and replaced files.
type beginning struct {
	Stage string    `json:"stage"`
	MTime time.Time `json:"mtime"` // original time of the directory itself
}

// dirTime is the modification time of a directory whose entries are changed.
type dirTime struct {
	Path  []byte    `json:"path"`
	Ino   uint64    `json:"ino"`
	MTime time.Time `json:"mtime"`
}

// stageName returns a random name for a stage.
func stageName() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return stagePrefix + hex.EncodeToString(b[:])
}

// openJournal opens and locks the journal of a directory.
func openJournal(journals, hostPath string, host *os.File) (*journal, error) {
	hostPath, err := filepath.Abs(hostPath)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(host.Fd()), &stat); err != nil {
		return nil, err
	}
	if journals == "" {
		return nil, errors.New("apply: no directory for journals")
	}
	if err := os.MkdirAll(journals, 0o700); err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	j, err := lockJournal(journals, fmt.Sprintf("%x-%x", stat.Dev, stat.Ino))
	if err != nil {
		return nil, err
	}
	j.path = hostPath
	if len(j.lines) == 0 {
		if err := j.write(record{Path: hostPath, Ino: stat.Ino}); err != nil {
			return nil, errors.Join(err, j.remove())
		}
	}
	return j, nil
}

// interrupted reports whether an earlier Apply was interrupted.
func (j *journal) interrupted() bool { return len(j.lines) > 1 }

// restart deletes the lines of an earlier Apply. The directory may have been renamed.
func (j *journal) restart() error {
	first := j.lines[0]
	if j.path != "" {
		first.Path = j.path
	}
	if err := j.file.Truncate(0); err != nil {
		return err
	}
	j.lines = nil
	return j.write(first)
}

// lockJournal locks a journal, and creates it if necessary. If another process removes the journal
// in the meantime, lockJournal tries again.
func lockJournal(journals, base string) (*journal, error) {
	dir, err := os.Open(journals)
	if err != nil {
		return nil, err
	}
	for {
		fd, err := unix.Openat(int(dir.Fd()), base, unix.O_RDWR|unix.O_CREAT|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			dir.Close()
			return nil, fmt.Errorf("apply: %w", err)
		}
		j := &journal{file: os.NewFile(uintptr(fd), base), dir: dir, base: base}
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			j.close()
			return nil, fault.Wrap(err, fault.Conflict, "apply_running", "changes are being applied to this directory").WithHint("try again when the other process has finished")
		}
		var opened, named unix.Stat_t
		if err := errors.Join(unix.Fstat(fd, &opened), unix.Fstatat(int(dir.Fd()), base, &named, unix.AT_SYMLINK_NOFOLLOW)); err != nil || opened.Ino != named.Ino {
			j.file.Close()
			if err != nil && !errors.Is(err, unix.ENOENT) {
				dir.Close()
				return nil, err
			}
			continue
		}
		if err := j.read(); err != nil {
			j.close()
			return nil, err
		}
		return j, nil
	}
}

// read reads the complete lines. The operations of an incomplete line were never started.
func (j *journal) read() error {
	data, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	for {
		text, rest, ok := bytes.Cut(data, []byte("\n"))
		if !ok {
			break
		}
		var r record
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("journal %s: %w", j.base, err)
		}
		j.lines, data = append(j.lines, r), rest
	}
	if len(data) == 0 {
		return nil
	}
	size, err := j.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	return j.file.Truncate(size - int64(len(data)))
}

// write adds a line and syncs it to the disk.
func (j *journal) write(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.lines = append(j.lines, r)
	return errors.Join(j.file.Sync(), j.dir.Sync())
}

// remove deletes the journal.
func (j *journal) remove() error {
	err := unix.Unlinkat(int(j.dir.Fd()), j.base, 0)
	return errors.Join(err, j.close())
}

// close closes the journal without deleting it.
func (j *journal) close() error { return errors.Join(j.file.Close(), j.dir.Close()) }

// mtimeOf returns a file's modification time, or the zero time after an error.
func mtimeOf(f *os.File) time.Time {
	info, err := f.Stat()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
