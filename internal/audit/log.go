package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/crannog/crannog/internal/fault"
)

// Options configure Open. Dir and Log are required.
type Options struct {
	Dir string
	Log *slog.Logger
	// Sinks receive each tree head that this process signs.
	Sinks []Sink
	// SegmentBytes is the size at which a new segment, a file of lines, is started. Zero means
	// 64 MiB.
	SegmentBytes int64
	// KeepAge and KeepBytes limit the log. A segment is verifiably dropped when all of its entries
	// are older than KeepAge, or when the log is larger than KeepBytes. Zero means 90 days and 4
	// GiB. A negative value means no limit.
	KeepAge   time.Duration
	KeepBytes int64
	// Queue is the number of entries that may wait for the disk. Zero means 16,384.
	Queue int

	step func(string) // for tests: called before each step of a write
}

const (
	defaultSegment   = 64 << 20
	defaultKeepAge   = 90 * 24 * time.Hour
	defaultKeepBytes = 4 << 30
	defaultQueue     = 16384
)

func (o Options) withDefaults() Options {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = defaultSegment
	}
	if o.KeepAge == 0 {
		o.KeepAge = defaultKeepAge
	}
	if o.KeepBytes == 0 {
		o.KeepBytes = defaultKeepBytes
	}
	if o.Queue <= 0 {
		o.Queue = defaultQueue
	}
	if o.step == nil {
		o.step = func(string) {}
	}
	return o
}

// Log is an open audit log. It is safe for concurrent use, and several processes may open the same
// directory.
type Log struct {
	dir      string
	opts     Options
	log      *slog.Logger
	signer   note.Signer
	verifier note.Verifier
	key      string // verifier key

	queue queue

	files sync.Mutex // guards the fields below it
	lock  *os.File   // flock: one process writes at a time
	head  head

	signing signing
	sinks   []*forwarder
	index   index
	growth  growthWatch

	closing sync.Once
	closed  error // result of Close
}

var _ Recorder = (*Log)(nil)

// Open opens the audit log in a directory, which it creates if necessary. A damaged log can be
// opened for reading and verifying, but accepts no entries.
func Open(o Options) (_ *Log, err error) {
	if o.Dir == "" || o.Log == nil {
		return nil, errors.New("open audit log: an option is missing")
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	o = o.withDefaults()
	l := &Log{dir: o.Dir, opts: o, log: o.Log}
	l.queue.init(l)
	l.index.log = l
	l.growth.path = l.path(hashesName)
	for _, s := range o.Sinks {
		l.sinks = append(l.sinks, newForwarder(s, o.Log))
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("open audit log in %s: %w", o.Dir, err)
			if l.lock != nil {
				err = errors.Join(err, l.lock.Close())
			}
			err = errors.Join(err, l.head.close())
		}
	}()
	if err := makePrivateDir(o.Dir); err != nil {
		return nil, err
	}
	if l.lock, err = openAt(l.path("lock"), os.O_RDWR|os.O_CREATE); err != nil {
		return nil, err
	}
	if err := l.openKey(); err != nil {
		return nil, err
	}
	err = l.locked(context.Background(), func() error { return nil })
	if isDamage(err) {
		l.log.Error("the audit log is damaged and takes no entries", "err", err)
		err = nil
	}
	return l, err
}

// Key returns the public key of the log, as a verifier key of signed notes.
func (l *Log) Key() string { return l.key }

// Close writes the queued entries, signs a last tree head and closes the files. Its error has the
// number of accepted entries that could not be written.
func (l *Log) Close() error {
	l.closing.Do(func() { l.closed = l.close() })
	return l.closed
}

func (l *Log) close() error {
	l.EndFollowing()
	errs := []error{l.queue.close()}
	l.signing.stop()
	if err := l.locked(context.Background(), l.signLast); err != nil && !isDamage(err) {
		errs = append(errs, err)
	}
	for _, s := range l.sinks {
		errs = append(errs, s.close())
	}
	l.files.Lock()
	defer l.files.Unlock()
	return errors.Join(append(errs, l.head.close(), l.index.close(), l.lock.Close())...)
}

// Status describes the state of a Log in this process.
type Status struct {
	Queued       int   // entries that wait for the disk
	Failing      error // error of the last write, or nil
	SinkFailures int   // failed deliveries of a tree head to a sink
	SinksBehind  int   // sinks without the newest tree head
}

// Status returns the state of the log.
func (l *Log) Status() Status {
	var st Status
	st.Queued, st.Failing = l.queue.state()
	for _, s := range l.sinks {
		failures, behind := s.state()
		st.SinkFailures += failures
		if behind {
			st.SinksBehind++
		}
	}
	return st
}

func (l *Log) path(name string) string { return filepath.Join(l.dir, name) }

// makePrivateDir creates the directory. It rejects a directory that other users own or can write
// to, because they could replace the key or create a link there.
func makePrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unavailable(dir, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || info.Mode().Perm()&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return fault.Newf(fault.Denied, "record_not_private", "other users can write to the directory %s, or own it", dir).
			WithHint("give it to the user who runs Crannog, with mode 0700")
	}
	return nil
}

// openAt opens a file of the log without following symbolic links.
func openAt(path string, flags int) (*os.File, error) {
	return os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
}

const codeUnavailable = "record_unavailable"

// unavailable returns the error for a log that cannot be written.
func unavailable(dir string, cause error) error {
	if e, ok := errors.AsType[*fault.Error](cause); ok && e.Code == codeUnavailable {
		return cause
	}
	if errors.Is(cause, syscall.ENOSPC) || errors.Is(cause, syscall.EDQUOT) || errors.Is(cause, syscall.EFBIG) {
		return fault.Wrap(cause, fault.Exhausted, codeUnavailable, "the audit log cannot be written: its disk is full").
			WithHint("free disk space at " + dir)
	}
	if errors.Is(cause, fs.ErrNotExist) {
		return fault.Wrap(cause, fault.Unavailable, codeUnavailable, "the audit log cannot be written: a file of it is gone").
			WithHint("check the directory " + dir)
	}
	return fault.Wrap(cause, fault.Unavailable, codeUnavailable, "the audit log cannot be written").
		WithHint("check the disk of " + dir + "; the server's log has the cause")
}

// writeFault returns the fault for the error of a write, or nil.
func (l *Log) writeFault(err error) error {
	switch {
	case err == nil:
		return nil
	case isDamage(err):
		return l.damageFault(err)
	}
	return unavailable(l.dir, err)
}

// damage is the error for a log whose files contradict each other.
type damage struct{ text string }

func (d *damage) Error() string { return d.text }

func damageError(format string, args ...any) error { return &damage{fmt.Sprintf(format, args...)} }

func isDamage(err error) bool {
	_, ok := errors.AsType[*damage](err)
	return ok
}

func (l *Log) damageFault(err error) error {
	return fault.Wrap(err, fault.Unavailable, codeUnavailable, "the audit log takes no entries: it was damaged or tampered with").
		WithHint("`crannog audit verify` names the entry; move " + l.dir + " away as evidence, and a new audit log begins")
}
