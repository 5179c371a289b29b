package watch

import (
	"bytes"
	"encoding/binary"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// inotifyEvent is an event of the kernel.
type inotifyEvent struct {
	wd   int
	mask uint32
	name string
}

// handle reports the events that the kernel wrote into buf.
func (w *Watcher) handle(fd int, buf []byte) error {
	for len(buf) >= unix.SizeofInotifyEvent {
		length := int(binary.NativeEndian.Uint32(buf[12:]))
		if len(buf) < unix.SizeofInotifyEvent+length {
			break
		}
		e := inotifyEvent{
			wd:   int(int32(binary.NativeEndian.Uint32(buf))),
			mask: binary.NativeEndian.Uint32(buf[4:]),
		}
		name, _, _ := bytes.Cut(buf[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+length], []byte{0})
		e.name = string(name)
		buf = buf[unix.SizeofInotifyEvent+length:]
		if err := w.handleEvent(fd, e); err != nil {
			return err
		}
	}
	return nil
}

func (w *Watcher) handleEvent(fd int, e inotifyEvent) error {
	if e.mask&unix.IN_Q_OVERFLOW != 0 {
		return ErrOverflow
	}
	dir, ok := w.dirs[e.wd]
	if !ok {
		return nil // from a directory that was moved away
	}
	if e.mask&unix.IN_IGNORED != 0 {
		w.forget(e.wd)
		if dir == "." {
			return ErrRoot
		}
		return nil
	}
	// A directory below the root has events of its own and events in its parent directory. Only the
	// latter are reported.
	if e.name == "" && dir != "." {
		return nil
	}
	return w.report(fd, dir, e)
}

func (w *Watcher) report(fd int, dir string, e inotifyEvent) error {
	path := filepath.Join(dir, e.name)
	isDir := w.recursive && e.mask&unix.IN_ISDIR != 0 && e.name != ""
	switch {
	case e.mask&unix.IN_CREATE != 0:
		return w.created(fd, dir, e.name, isDir)
	case e.mask&unix.IN_MOVED_TO != 0:
		return w.appeared(fd, dir, e.name, isDir, nil)
	case e.mask&(unix.IN_MOVED_FROM|unix.IN_MOVE_SELF) != 0:
		w.forgetEarly(dir, e.name)
		if isDir {
			if err := w.dropTree(fd, path); err != nil {
				return err
			}
		}
		return w.send(dir, e.name, Rename)
	case e.mask&(unix.IN_DELETE|unix.IN_DELETE_SELF) != 0:
		w.forgetEarly(dir, e.name)
		return w.send(dir, e.name, Remove)
	case e.mask&unix.IN_ATTRIB != 0:
		return w.send(dir, e.name, Chmod)
	case e.mask&unix.IN_MODIFY != 0:
		return w.send(dir, e.name, Write)
	}
	return nil
}

// created reports a created entry, and everything that was created in it before it was watched.
func (w *Watcher) created(fd int, dir, name string, isDir bool) error {
	if w.forgetEarly(dir, name) {
		return nil
	}
	var late [][2]string
	err := w.appeared(fd, dir, name, isDir, func(below, entry string) { late = append(late, [2]string{below, entry}) })
	if err != nil {
		return err
	}
	for _, l := range late {
		// The kernel may have queued the same creation, which must be reported only once.
		if w.reportedEarly[l[0]] == nil {
			w.reportedEarly[l[0]] = map[string]struct{}{}
		}
		w.reportedEarly[l[0]][l[1]] = struct{}{}
		if err := w.send(l[0], l[1], Create); err != nil {
			return err
		}
	}
	return nil
}

// appeared watches a new entry if it is a directory, and then reports it. A client that gets the
// event thus also gets events of files in the directory.
func (w *Watcher) appeared(fd int, dir, name string, isDir bool, found func(dir, name string)) error {
	if isDir {
		path := filepath.Join(dir, name)
		err := w.as(func() error { return w.addTree(fd, path, found) })
		if err != nil {
			err = w.tolerate(path, err)
		}
		if err != nil {
			return err
		}
	}
	return w.send(dir, name, Create)
}

// forgetEarly forgets that an entry was reported early, and reports whether it was.
func (w *Watcher) forgetEarly(dir, name string) bool {
	names := w.reportedEarly[dir]
	if _, ok := names[name]; !ok {
		return false
	}
	delete(names, name)
	if len(names) == 0 {
		delete(w.reportedEarly, dir)
	}
	return true
}
