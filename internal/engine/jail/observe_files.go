package jail

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/engine/linux/overlaytar"
)

const (
	// maxHashed bounds the size of a file whose checksum is computed.
	maxHashed = 64 << 20
	// maxDepth bounds the depth of the directories that are read.
	maxDepth = 500
	// surveyShare is how much longer than a survey after a command the pause after it is, so that
	// surveys of many files do not occupy a processor.
	surveyShare = 10
)

// Types of files in events. A removed file of the image is present as a mark in the layer.
const (
	typeFile, typeDir, typeLink, typeOther = "file", "dir", "link", "other"
	typeRemoved                            = "removed"
)

// fileState is a path of the layers as last recorded.
type fileState struct {
	kind     string
	mode     uint32
	uid      uint32
	size     int64
	inode    uint64
	changed  time.Time // the time of the last change of the inode
	sum      string
	unhashed string
}

// fileRecord is what is recorded of the files so far.
type fileRecord struct {
	known   map[string]fileState
	resumed bool // the files were recorded by an earlier process
}

// surveyCommands records changed files after commands.
func (o *observing) surveyCommands() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-o.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		select {
		case <-o.stop:
			return
		case <-o.commandEnded:
		}
		start := time.Now()
		if err := o.survey(ctx, false); err != nil && ctx.Err() == nil {
			// The next survey records the same changes.
			o.b.e.log.Debug("record changed files of a sandbox", "sandbox", o.b.rec.ID, "err", err)
		}
		pause := time.NewTimer(surveyShare * time.Since(start))
		select {
		case <-o.stop:
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// survey compares the layers with what was recorded, and records the differences. The first survey
// of a new sandbox records nothing, because its files are those of the image.
func (o *observing) survey(ctx context.Context, first bool) error {
	o.surveyMu.Lock()
	defer o.surveyMu.Unlock()
	if o.view == nil {
		return nil // the sandbox has not started
	}
	layers, options, err := o.b.layersOf(o.view)
	if err != nil {
		return fmt.Errorf("view of the layers: %w", err)
	}
	s := &fileSurvey{o: o, ctx: ctx, options: options, found: map[string]fileState{}, silent: first && !o.files.resumed}
	for _, l := range layers {
		if err == nil {
			err = s.directory(l.Upper, l.Path, 0)
		}
		_ = l.Upper.Close() // nothing is written to it
	}
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(o.files.known)) {
		old := o.files.known[name]
		if _, exists := s.found[name]; exists || old.kind == typeRemoved {
			continue
		}
		if err := s.record(name, events.Removed, old); err != nil {
			return err
		}
		delete(o.files.known, name)
	}
	// A mark that is gone needs no event: its path is in a directory that was removed.
	for name, old := range o.files.known {
		if _, exists := s.found[name]; !exists && old.kind == typeRemoved {
			delete(o.files.known, name)
		}
	}
	return nil
}

// fileSurvey is one survey.
type fileSurvey struct {
	o       *observing
	ctx     context.Context
	options overlaytar.Options
	found   map[string]fileState
	silent  bool
}

func (s *fileSurvey) directory(d *os.Root, name string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("/%s is more than %d directories deep", name, maxDepth)
	}
	f, err := d.Open(".")
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	slices.Sort(names)
	for _, base := range names {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		inside := path.Join(name, base)
		if slices.Contains(s.options.Points, inside) {
			continue
		}
		info, err := d.Lstat(base)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed in between
		}
		if err == nil {
			err = s.entry(d, base, inside, info)
		}
		if err != nil {
			return err
		}
		if !info.IsDir() {
			continue
		}
		below, err := d.OpenRoot(base)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue // it was replaced in between
		}
		if err != nil {
			return err
		}
		err = s.directory(below, inside, depth+1)
		if err = errors.Join(err, below.Close()); err != nil {
			return err
		}
	}
	return nil
}

// entry compares one path.
func (s *fileSurvey) entry(d *os.Root, base, name string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("/%s has no attributes", name)
	}
	uid, _ := s.options.Owner(int(stat.Uid), int(stat.Gid))
	now := fileState{
		kind: kindOf(info, stat), mode: uint32(info.Mode().Perm()), uid: uint32(uid), inode: stat.Ino, changed: time.Unix(stat.Ctim.Unix()),
	}
	old, known := s.o.files.known[name]
	initial := s.silent || s.initial(name, now)
	if known && old.kind == now.kind && old.inode == now.inode && old.changed.Equal(now.changed) && (now.kind != typeFile || old.size == info.Size()) {
		s.found[name] = old
		return nil
	}
	op := events.Created
	switch now.kind {
	case typeFile:
		now.size = info.Size()
		if !initial {
			s.hash(d, base, &now)
		}
	case typeLink:
		target, err := d.Readlink(base)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		now.size = int64(len(target))
		now.sum = hexSum(target)
	}
	switch {
	case now.kind == typeRemoved:
		op = events.Removed
	case known && old.kind != typeRemoved || !known && copied(d, base, info):
		op = events.Changed
	}
	s.found[name] = now
	same := known && old.kind == now.kind && old.mode == now.mode && old.uid == now.uid && old.size == now.size && old.sum == now.sum && old.sum != "" == (now.sum != "")
	// A directory of the image is copied when something below it changes.
	through := !known && now.kind == typeDir && op == events.Changed
	if initial || same || through {
		s.remember(name, now)
		return nil
	}
	return s.record(name, op, now)
}

// initial reports whether a path was created with the sandbox and has not changed.
func (s *fileSurvey) initial(name string, now fileState) bool {
	if now.kind == typeRemoved && slices.Contains(s.options.Removed, name) {
		return true
	}
	created, ok := s.options.Unchanged[name]
	return ok && created.Equal(now.changed)
}

func (s *fileSurvey) remember(name string, now fileState) {
	if s.o.files.known == nil {
		s.o.files.known = map[string]fileState{}
	}
	s.o.files.known[name] = now
}

// record writes an event and remembers the state.
func (s *fileSurvey) record(name string, op events.Op, now fileState) error {
	e := &events.Event{Kind: events.File, Path: "/" + name, Op: op, UID: now.uid}
	if op != events.Removed {
		e.Type, e.Mode, e.Size, e.Sum, e.Unhashed = now.kind, now.mode, now.size, now.sum, now.unhashed
	}
	if err := s.o.writer.Write(e, false); err != nil {
		return err
	}
	s.remember(name, now)
	return nil
}

func kindOf(info fs.FileInfo, stat *syscall.Stat_t) string {
	switch {
	case info.Mode().IsRegular():
		return typeFile
	case info.IsDir():
		return typeDir
	case info.Mode()&fs.ModeSymlink != 0:
		return typeLink
	case info.Mode()&fs.ModeCharDevice != 0 && stat.Rdev == 0:
		return typeRemoved
	}
	return typeOther
}

// copied reports whether the overlay copied a file of the image because it was changed.
func copied(d *os.Root, base string, info fs.FileInfo) bool {
	if !info.Mode().IsRegular() && !info.IsDir() {
		return false
	}
	f, err := d.OpenFile(base, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	for _, name := range []string{"user.overlay.origin", "trusted.overlay.origin"} {
		if _, err := unix.Fgetxattr(int(f.Fd()), name, nil); err == nil {
			return true
		}
	}
	return false
}

// hash adds the checksum of a file, or why there is none.
func (s *fileSurvey) hash(d *os.Root, base string, now *fileState) {
	if now.size > maxHashed {
		now.unhashed = "too_large"
		return
	}
	f, err := d.OpenFile(base, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		now.unhashed = "unreadable"
		if errors.Is(err, fs.ErrNotExist) {
			now.unhashed = "gone"
		}
		return
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, maxHashed+1))
	info, statErr := f.Stat()
	switch {
	case cmp.Or(err, statErr) != nil:
		now.unhashed = "unreadable"
	case n != now.size || info.Size() != now.size || inodeOf(info) != now.inode:
		now.unhashed = "changing"
	default:
		now.sum = hex.EncodeToString(h.Sum(nil))
	}
}

func hexSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
