package watch

import (
	"maps"
	"slices"
	"unicode/utf8"

	"gvisor.dev/gvisor/pkg/context"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"github.com/crannog/crannog/internal/audit/events"
)

// Reasons of gaps.
const (
	reasonMany  = "too_many_paths"
	reasonEnded = "box_ended"
)

// A survey reads files while programs run, and gVisor must not be saved during that time. A save
// waits for the asynchronous work of tasks, so a survey runs as work of a task.

// checkFilesSoon checks files on behalf of an ending task, without delaying the task.
func (w *watcher) checkFilesSoon(t *sentry.Task) {
	if w.files.isEmpty() || w.queued.Swap(true) {
		return
	}
	k := t.Kernel()
	t.QueueAIO(func(context.Context) {
		w.queued.Store(false)
		w.checkFiles(k)
	})
}

// checkFilesNow checks files for a caller outside of the kernel, and returns how many changes it
// could not record. A paused kernel may be in the middle of a save, so nothing in it is touched.
func (w *watcher) checkFilesNow() uint64 {
	k := w.kernel.Load()
	if k == nil {
		return 0 // nothing has run yet
	}
	if k.IsPaused() {
		return Unsaved
	}
	done := make(chan uint64, 1)
	k.GlobalInit().Leader().QueueAIO(func(context.Context) {
		// From here on, a pause waits for this survey, unless it has already begun.
		if k.IsPaused() {
			done <- Unsaved
			return
		}
		done <- w.checkFiles(k)
	})
	return <-done
}

// checkFiles records the changes of the noted files, and returns how many had no room.
func (w *watcher) checkFiles(k *sentry.Kernel) uint64 {
	w.surveying.Lock()
	defer w.surveying.Unlock()
	if w.files.isEmpty() {
		return 0
	}
	ns := k.GlobalInit().Leader().GetMountNamespace()
	if ns == nil {
		return w.recordUnchecked(reasonEnded)
	}
	ctx := k.SupervisorContext()
	defer ns.DecRef(ctx)
	p := w.recordedMounts(k)
	if p == nil {
		return w.recordUnchecked(reasonEnded)
	}
	l := &fileView{ctx: ctx, k: k, creds: kernelCredentials(k), places: p}
	batch := w.files.take(ctx, func(f *vfs.FileDescription) string { return w.path(ctx, k, f.VirtualDentry()) })
	paths := slices.Sorted(maps.Keys(batch))
	for i := 0; i < len(paths); i++ {
		path := paths[i]
		current := l.at(path)
		for _, other := range w.files.otherNames(current, path) {
			if _, queued := batch[other]; !queued {
				batch[other] = note{existed: true, actor: batch[path].actor}
				paths = append(paths, other)
			}
		}
		if err := w.report(l, path, batch[path], current); err != nil {
			for _, left := range paths[i:] {
				w.files.note(left, batch[left].existed, batch[left].actor)
			}
			return uint64(len(paths) - i)
		}
	}
	return w.gap(reasonMany)
}

// recordUnchecked records that the remaining files can no longer be checked.
func (w *watcher) recordUnchecked(reason string) uint64 {
	w.files.mu.Lock()
	w.files.lost += uint64(len(w.files.pending))
	w.files.pending, w.files.open = nil, nil
	w.files.mu.Unlock()
	return w.gap(reason)
}

// gap records that changes were lost, and returns how many if it could not.
func (w *watcher) gap(reason string) uint64 {
	w.files.mu.Lock()
	defer w.files.mu.Unlock()
	if w.files.lost == 0 {
		return 0
	}
	if err := w.out.Write(&events.Event{Kind: events.Gap, Lost: w.files.lost, Reason: reason}, false); err != nil {
		return w.files.lost
	}
	w.files.lost = 0
	return 0
}

// take returns the files to check: the noted paths, and the files that are open for writing, by
// their present paths.
func (f *files) take(ctx context.Context, path func(*vfs.FileDescription) string) map[string]note {
	f.mu.Lock()
	f.sweepLocked()
	batch := f.pending
	f.pending = nil
	open := maps.Clone(f.open)
	if batch == nil {
		batch = map[string]note{}
	}
	for path, by := range f.always {
		if _, noted := batch[path]; !noted {
			batch[path] = note{existed: true, actor: by}
		}
	}
	f.mu.Unlock()
	for file, h := range open {
		if !file.TryIncRef() {
			continue // the next sweep removes it
		}
		previous := h.path
		if h.path = path(file); h.path == "" {
			h.file = inodeOf(ctx, file)
		}
		file.DecRef(ctx)
		all := append([]string{h.path, previous}, f.namesOf(h.file)...)
		for _, path := range all {
			if _, noted := batch[path]; path != "" && !noted {
				batch[path] = note{existed: true, actor: h.actor}
			}
		}
		f.mu.Lock()
		if _, still := f.open[file]; still {
			f.open[file] = h
		}
		f.mu.Unlock()
	}
	return batch
}

// namesOf returns the known names of a file.
func (f *files) namesOf(file inode) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if file == (inode{}) {
		return nil
	}
	return slices.Clone(f.links[file])
}

// otherNames returns the other names of a file.
func (f *files) otherNames(current state, path string) []string {
	if current.links < 2 {
		return nil
	}
	return slices.DeleteFunc(f.namesOf(current.file), func(name string) bool { return name == path })
}

// report records the change of a path, if there is one.
func (w *watcher) report(l *fileView, path string, n note, current state) error {
	w.files.mu.Lock()
	before, surveyed := w.files.known[path]
	w.files.mu.Unlock()
	e := events.Event{Kind: events.File, Path: path, PID: int(n.pid), Command: int(n.command), UID: n.uid, Cut: !utf8.ValidString(path)}
	switch {
	case current.kind == "" && !n.existed:
		return nil
	case current.kind == "":
		e.Op = events.Removed
	case !n.existed:
		e.Op = events.Created
	default:
		if !surveyed && w.fresh {
			before, surveyed = l.below(path)
		}
		if surveyed && before.same(current) {
			return nil
		}
		e.Op = events.Changed
	}
	current.describe(&e)
	if err := w.out.Write(&e, false); err != nil {
		return err
	}
	w.files.mu.Lock()
	defer w.files.mu.Unlock()
	switch {
	case current.kind == "":
		delete(w.files.known, path)
	case len(w.files.known) >= maxNotes:
	case w.files.known == nil:
		w.files.known = map[string]state{path: current}
	default:
		w.files.known[path] = current
	}
	return nil
}
