package recording

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/audit/asciicast"
)

// Head has the facts about the start of a command.
type Head struct {
	N       int       `json:"n"`
	How     string    `json:"how"` // start, exec, cell, terminal or connect
	Command []string  `json:"command"`
	Started time.Time `json:"started"`
	TTY     bool      `json:"tty,omitempty"`

	// Cols, Rows and Term describe the terminal.
	Cols int    `json:"-"`
	Rows int    `json:"-"`
	Term string `json:"-"`
}

// Tail has the facts about the end of a command.
type Tail struct {
	Ended time.Time `json:"ended"`
	// Exit is absent if the exit code is unknown.
	Exit      *int   `json:"exit,omitempty"`
	Error     string `json:"error,omitempty"` // fault code if it did not run
	Lost      bool   `json:"lost,omitempty"`  // the stream ended early
	Truncated bool   `json:"truncated,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
}

// Recording is the recording of one running command. It is safe for concurrent use. If a write
// fails, the command continues without a recording, and End returns the error.
type Recording struct {
	store   *Store
	history *history
	n       int
	started time.Time

	mu      sync.Mutex
	ended   bool
	w       *asciicast.Writer
	pending []byte      // lines that are not in a file yet
	file    *os.File    // the recording's own file, or nil
	flush   *time.Timer // calls sync
	broken  error       // first error of a write
}

const (
	// flushAfter limits how long output is only in memory, for readers that follow and in case the
	// process is killed.
	flushAfter = 200 * time.Millisecond
	// maxShort is the size at which a recording gets a file of its own.
	maxShort = 64 << 10
	// maxListed limits the text of a command in a list.
	maxListed = 1 << 10
)

// Begin starts the recording of a sandbox's next command.
func (s *Store) Begin(sandbox string, h Head) (*Recording, error) {
	r, err := s.history(sandbox)
	if err != nil {
		return nil, err
	}
	t := &Recording{store: s, history: r, started: h.Started}
	t.w, err = asciicast.NewWriter((*destination)(t), asciicast.Header{
		Cols: h.Cols, Rows: h.Rows, Type: h.Term, Time: h.Started, Command: quoted(h.Command),
	}, s.bound)
	if err != nil {
		s.done(r)
		return nil, err
	}
	h.Command = shortened(h.Command, maxListed)
	if t.n, err = r.begin(h); err != nil {
		s.done(r)
		return nil, fmt.Errorf("begin a recording of %s: %w", sandbox, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flush = time.AfterFunc(flushAfter, t.sync)
	return t, nil
}

// destination is where the writer of a Recording writes: to memory, and to a file from maxShort on.
type destination Recording

// Write implements io.Writer. The caller holds t.mu.
func (t *destination) Write(lines []byte) (int, error) {
	if t.file == nil {
		if t.pending = append(t.pending, lines...); len(t.pending) <= maxShort {
			return len(lines), nil
		}
		return len(lines), (*Recording)(t).openFile()
	}
	return t.file.Write(lines)
}

// openFile gives the recording a file of its own. The caller holds t.mu.
func (t *Recording) openFile() error {
	f, err := os.OpenFile(filepath.Join(t.history.dir, ownName(t.n)), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	t.file = f
	_, err = f.Write(t.pending)
	t.pending = nil
	return err
}

// shortened returns the first arguments of a command, up to limit bytes.
func shortened(argv []string, limit int) []string {
	var out []string
	for _, arg := range argv {
		if len(arg) > limit {
			return append(out, strings.ToValidUTF8(arg[:limit], "")+"…")
		}
		out = append(out, arg)
		limit -= len(arg)
	}
	return out
}

// maxQuoted limits the command in a header. A comment in the recording has the complete command.
const maxQuoted = 1 << 10

// quoted returns a command with shell quoting.
func quoted(argv []string) string {
	var b strings.Builder
	for i, arg := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if arg != "" && strings.Trim(arg, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_+=:,./-") == "" {
			b.WriteString(arg)
		} else {
			b.WriteString("'" + strings.ReplaceAll(arg, "'", `'\''`) + "'")
		}
		if b.Len() > maxQuoted {
			return strings.ToValidUTF8(b.String()[:maxQuoted], "") + "…"
		}
	}
	return b.String()
}

// N returns the command's number in its sandbox.
func (t *Recording) N() int { return t.n }

// Output adds output from one source: 1 is standard output, 2 standard error, 3 a terminal.
func (t *Recording) Output(source int, data []byte) {
	t.write(func(at time.Duration) error { return t.w.Output(at, source, data) })
}

// Resize records a new size of the terminal.
func (t *Recording) Resize(cols, rows int) {
	t.write(func(at time.Duration) error { return t.w.Resize(at, cols, rows) })
}

// Mark adds a marker.
func (t *Recording) Mark(text string) {
	t.write(func(at time.Duration) error { return t.w.Mark(at, text) })
}

// Truncated reports whether output was omitted.
func (t *Recording) Truncated() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.w.Truncated()
}

// write adds an event at the current time.
func (t *Recording) write(event func(time.Duration) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.note(event(time.Since(t.started)))
	if t.flush == nil && !t.w.Truncated() {
		t.flush = time.AfterFunc(flushAfter, t.sync)
	}
}

// note stores the first error for End. The caller holds t.mu.
func (t *Recording) note(err error) {
	if t.broken == nil {
		t.broken = err
	}
}

// sync writes collected output to the recording's own file.
func (t *Recording) sync() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.flush = nil
	t.note(t.w.Flush())
	if t.file == nil && t.broken == nil {
		t.note(t.openFile())
	}
}

// End writes the end of the command. If it returns an error, the recording is incomplete. It does
// nothing if it was called before, or if the sandbox was removed.
func (t *Recording) End(end Tail) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil
	}
	t.ended = true
	if t.flush != nil {
		t.flush.Stop()
	}
	at := end.Ended.Sub(t.started)
	if end.Exit != nil {
		t.note(t.w.Exit(at, *end.Exit))
	} else {
		t.note(t.w.FlushPartial(at))
	}
	t.note(t.w.Flush())
	if t.file != nil {
		t.note(t.file.Close())
	}
	end.Truncated, end.Bytes = t.w.Truncated(), t.w.Size()
	t.note(t.history.end(t.n, end, t.pending))
	t.pending = nil
	t.store.done(t.history)
	t.store.spend(end.Bytes)
	if t.broken == nil || t.history.closedForGood() {
		return nil
	}
	return fmt.Errorf("recording %d: %w", t.n, t.broken)
}
