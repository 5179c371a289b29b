package watch

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/hostarch"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// adopt registers the processes of a restored sandbox, and the files that they may write to.
func (w *watcher) adopt(k *sentry.Kernel) {
	pids := k.RootPIDNamespace()
	for _, tg := range pids.ThreadGroups() {
		pid := int32(pids.IDOfThreadGroup(tg))
		for t := tg.Leader(); t != nil; t = t.Parent() {
			up := t.Parent()
			if up != nil && up.ThreadGroup() == k.GlobalInit() {
				w.kin.adopt(pid, int32(pids.IDOfThreadGroup(t.ThreadGroup())))
				break
			}
		}
	}
	p := w.recordedMounts(k)
	if p == nil {
		return
	}
	l := &fileView{ctx: k.SupervisorContext(), k: k, creds: kernelCredentials(k), places: p}
	for _, t := range pids.Tasks() {
		pid := int32(pids.IDOfThreadGroup(t.ThreadGroup()))
		w.adoptTask(l, t, actor{pid: pid, command: w.kin.command(pid), uid: uint32(t.Credentials().EffectiveKUID)})
	}
}

// maxAdoptedSize bounds the size of an open file whose content is read before programs continue.
// The content is needed so that an open file that is not written is not reported as changed.
const maxAdoptedSize = 1 << 20

// adoptTask registers the files that a task has open for writing or has mapped writable.
func (w *watcher) adoptTask(l *fileView, t *sentry.Task, by actor) {
	var table *sentry.FDTable
	var memory *mm.MemoryManager
	t.WithMuLocked(func(t *sentry.Task) {
		// An ended task keeps its table until its parent has waited for it. That table must not be
		// used.
		if table = t.FDTable(); table != nil && !table.TryIncRef() {
			table = nil
		}
		memory = t.MemoryManager()
	})
	if table != nil {
		table.ForEach(l.ctx, func(_ int32, file *vfs.FileDescription, _ sentry.FDFlags) bool {
			w.adoptFile(l, file, by)
			return true
		})
		table.DecRef(l.ctx)
	}
	var mapped []string
	if memory != nil && memory.IncUsers() {
		memory.ReadMapsDataInto(l.ctx, func(_, _ hostarch.Addr, permissions hostarch.AccessType, private string, _ uint64, _, _ uint32, inode uint64, path string) {
			if permissions.Write && private != "p" && inode != 0 {
				mapped = append(mapped, path)
			}
		})
		memory.DecUsers(l.ctx)
	}
	w.files.mu.Lock()
	defer w.files.mu.Unlock()
	for _, path := range mapped {
		if len(path) > 0 && path[0] == '/' && !isSystemPath(path) {
			w.files.mapped(path, by)
		}
	}
}

// adoptFile registers a file that is open for writing, if it is on a recorded mount.
func (w *watcher) adoptFile(l *fileView, file *vfs.FileDescription, by actor) {
	if !file.IsWritable() || file.StatusFlags()&linux.O_PATH != 0 || l.places.mounts[file.Mount().Filesystem()] == nil {
		return
	}
	h := held{path: w.path(l.ctx, l.k, file.VirtualDentry()), actor: by}
	if h.path == "" {
		h.file = inodeOf(l.ctx, file)
	} else if stat, err := file.Stat(l.ctx, vfs.StatOptions{Mask: linux.STATX_SIZE}); err == nil && stat.Size <= maxAdoptedSize {
		current := l.at(h.path)
		w.files.mu.Lock()
		if w.files.known == nil {
			w.files.known = map[string]state{}
		}
		w.files.known[h.path] = current
		w.files.mu.Unlock()
	}
	w.files.hold(file, h)
}

// mapped registers a file that is mapped through a closed descriptor. There is no way to determine
// whether it is still mapped, so each survey checks it.
func (f *files) mapped(path string, by actor) {
	if f.always == nil {
		f.always = map[string]actor{}
	}
	f.always[path] = by
}
