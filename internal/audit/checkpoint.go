package audit

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const (
	checkpointsName = "checkpoints"
	// checkpointAge limits how long an entry is not covered by a signed tree head.
	checkpointAge = time.Minute
	// maxCheckpoints limits the number of stored tree heads. When the file is full, every second
	// one of the older half is removed, so that the newest and some of each age remain.
	maxCheckpoints = 1 << 20
	// maxNote limits the bytes of one signed tree head.
	maxNote = 16 << 10
)

// signing runs the background work of a log: it signs a tree head within checkpointAge after an
// entry was written, and drops old entries.
type signing struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	newest  Checkpoint // newest tree head that this process knows
	work    sync.WaitGroup
}

// arm makes sure that a tree head is signed within checkpointAge.
func (s *signing) arm(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil && !s.stopped {
		s.timer = time.AfterFunc(checkpointAge, func() { s.run(func() { s.signDue(l) }) })
	}
}

// signDue signs a tree head when the timer fires. If that fails, it arms the timer again.
func (s *signing) signDue(l *Log) {
	s.mu.Lock()
	s.timer = nil
	s.mu.Unlock()
	if _, err := l.sign(context.Background()); err != nil {
		l.log.Error("tree head not signed", "err", err)
		s.arm(l)
	}
}

// run starts background work, unless the log is closing. stop waits for the work.
func (s *signing) run(work func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.work.Go(work)
	}
}

// retain drops old entries in the background, by age and by size.
func (s *signing) retain(l *Log) {
	s.run(func() {
		if err := l.retain(context.Background()); err != nil {
			l.log.Error("old entries not dropped", "err", err)
		}
	})
}

func (s *signing) stop() {
	s.mu.Lock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// Checkpoint implements Recorder.
func (l *Log) Checkpoint(ctx context.Context) (Checkpoint, error) {
	if err := l.queue.do(ctx, &group{sign: true}); err != nil {
		return Checkpoint{}, err
	}
	return l.newest(), nil
}

func (l *Log) newest() Checkpoint {
	l.signing.mu.Lock()
	defer l.signing.mu.Unlock()
	return l.signing.newest
}

// sign signs a tree head over all current entries.
func (l *Log) sign(ctx context.Context) (Checkpoint, error) {
	if err := l.locked(ctx, l.signLocked); err != nil {
		return Checkpoint{}, err
	}
	return l.newest(), nil
}

// signLast signs a last tree head when the log is closed, if there are new entries.
func (l *Log) signLast() error {
	if l.head.size == 0 {
		return nil
	}
	return l.signLocked()
}

// signLocked signs a tree head. It does nothing if this or another process has already signed a
// tree head of the same size. The caller holds the lock.
func (l *Log) signLocked() error {
	h := &l.head
	if last := l.newest(); last.Note != "" && last.Size == h.size {
		return nil
	}
	onDisk, err := l.lastCheckpoint()
	if err != nil {
		return err
	}
	if onDisk.Note != "" && onDisk.Size == h.size {
		l.remember(onDisk)
		return nil
	}
	root, err := tlog.TreeHash(h.size, treeOf(h.hashes, h.size))
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s\n%d\n%s\n", l.signer.Name(), h.size, root)
	signed, err := note.Sign(&note.Note{Text: text}, l.signer)
	if err != nil {
		return err
	}
	c := Checkpoint{Size: h.size, Root: root.String(), Note: string(signed)}
	// Sync the entries and the tree before signing: after a power failure, repair changes only what
	// is newer than the newest signed tree head.
	if err := datasync(h.hashes); err != nil {
		return err
	}
	l.opts.step("checkpoint")
	if err := l.store(c); err != nil {
		return err
	}
	l.remember(c)
	for _, s := range l.sinks {
		s.offer(c)
	}
	return nil
}

func (l *Log) remember(c Checkpoint) {
	l.signing.mu.Lock()
	defer l.signing.mu.Unlock()
	l.signing.newest = c
}

// openCheckpoint checks the signature of a note and parses its content.
func openCheckpoint(text string, key note.Verifier) (Checkpoint, tlog.Hash, error) {
	if len(text) > maxNote {
		return Checkpoint{}, tlog.Hash{}, damageError("a signed tree head has %d bytes", len(text))
	}
	n, err := note.Open([]byte(text), note.VerifierList(key))
	if err != nil {
		return Checkpoint{}, tlog.Hash{}, damageError("a tree head is not signed by %s: %v", key.Name(), err)
	}
	parts := strings.SplitN(n.Text, "\n", 4)
	if len(parts) != 4 || parts[0] != key.Name() {
		return Checkpoint{}, tlog.Hash{}, damageError("a signed note is not a tree head of %s", key.Name())
	}
	size, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != parts[1] {
		return Checkpoint{}, tlog.Hash{}, damageError("a signed tree head has no size")
	}
	root, err := parseHash(parts[2])
	if err != nil {
		return Checkpoint{}, tlog.Hash{}, damageError("a signed tree head has no root hash")
	}
	for _, sig := range n.Sigs {
		if raw, err := base64.StdEncoding.DecodeString(sig.Base64); err != nil || base64.StdEncoding.EncodeToString(raw) != sig.Base64 {
			return Checkpoint{}, tlog.Hash{}, damageError("the signature of a tree head does not have the expected format")
		}
	}
	return Checkpoint{Size: size, Root: parts[2], Note: text}, root, nil
}
