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

// journal is what a killed Apply leaves to tell how far it came: lines, of
// which the last may be cut. Who holds it locked is alone in its directory.
type journal struct {
	file  *os.File
	dir   *os.File
	base  string
	path  string // the directory's now
	lines []record
}

// record is a line of a journal. It has one of its fields.
type record struct {
	// Path and Ino are the directory's, in the first line.
	Path  string     `json:"path,omitempty"`
	Ino   uint64     `json:"ino,omitempty"`
	Begin *beginning `json:"begin,omitempty"`
	// Ops are about to be done.
	Ops  []op     `json:"ops,omitempty"`
	Dirs []moment `json:"dirs,omitempty"`
	// Done says that all of them are: from here on there is no way back.
	Done bool `json:"done,omitempty"`
	// Undone says that everything is as it was.
	Undone bool `json:"undone,omitempty"`
}

// beginning names the directory that is made for what comes and what goes.
type beginning struct {
	Stage string    `json:"stage"`
	MTime time.Time `json:"mtime"` // of the directory itself, before
}

// moment is the time of a directory in which names are changed.
type moment struct {
	Path  []byte    `json:"path"`
	Ino   uint64    `json:"ino"`
	MTime time.Time `json:"mtime"`
}

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

// left reports whether an earlier Apply left something.
func (j *journal) left() bool { return len(j.lines) > 1 }

// restart drops what an earlier Apply wrote. The directory may have another
// name by now.
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

// lockJournal makes the file if need be. Somebody may end and remove it
// between two steps here.
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
			return nil, fault.Wrap(err, fault.Conflict, "apply_running", "changes are being applied to this directory").WithHint("try again when that is done")
		}
		var mine, named unix.Stat_t
		if err := errors.Join(unix.Fstat(fd, &mine), unix.Fstatat(int(dir.Fd()), base, &named, unix.AT_SYMLINK_NOFOLLOW)); err != nil || mine.Ino != named.Ino {
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

// read takes the lines that are whole: before one that is cut nothing was done
// of what it says.
func (j *journal) read() error {
	data, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	for {
		text, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
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

// write adds a line that is on the disk when it returns.
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

// remove ends the journal.
func (j *journal) remove() error {
	err := unix.Unlinkat(int(j.dir.Fd()), j.base, 0)
	return errors.Join(err, j.close())
}

// close lets go of it, and leaves it.
func (j *journal) close() error { return errors.Join(j.file.Close(), j.dir.Close()) }

func mtimeOf(f *os.File) time.Time {
	info, err := f.Stat()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
