package watch

import (
	"strings"
	"sync"

	"gvisor.dev/gvisor/pkg/context"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// maxNotes bounds the number of paths that a survey has to check. A sandbox has far fewer files;
// only a loop that creates new names exceeds it.
const maxNotes = 1_000_000

// note is a path to check.
type note struct {
	existed bool // at the last survey
	actor
}

// actor is the process that changed a file. If several did, it is the last one that was noted.
type actor struct {
	pid, command int32
	uid          uint32
}

// held describes a descriptor through which a program may write at any time, also by mapping it. It
// does not keep the descriptor open, and each survey checks whether that is still open.
type held struct {
	path string // the last known path
	file inode  // the file, if it has no path
	actor
}

// inode identifies a file regardless of its names.
type inode struct {
	major, minor uint32
	number       uint64
}

// files records which of the sandbox's files have to be checked, and what is known of them.
type files struct {
	// names is locked while names change. A rename locks it exclusively, because it moves
	// everything below a directory.
	names sync.RWMutex

	mu      sync.Mutex
	pending map[string]note
	open    map[*vfs.FileDescription]held
	swept   int // number of open descriptors after the last sweep
	lost    uint64
	known   map[string]state   // by the last survey
	links   map[inode][]string // additional names of files
	always  map[string]actor   // may be written without a descriptor
	places  *places
}

// places holds the mounts in the first process's view whose files are recorded.
type places struct {
	root   vfs.VirtualDentry
	mounts map[*vfs.Filesystem]*vfs.Mount
}

// systemDirs contain no files of users.
var systemDirs = []string{"/proc", "/sys", "/dev"}

// recordedMounts returns the mounts whose files are recorded. They do not change, because programs
// in the sandbox may mount only in their own namespaces.
func (w *watcher) recordedMounts(k *sentry.Kernel) *places {
	w.files.mu.Lock()
	p := w.files.places
	w.files.mu.Unlock()
	if p != nil {
		return p
	}
	ns := k.GlobalInit().Leader().GetMountNamespace()
	if ns == nil {
		return nil // the first process has ended
	}
	ctx := k.SupervisorContext()
	defer ns.DecRef(ctx)
	p = &places{root: ns.Root(ctx), mounts: map[*vfs.Filesystem]*vfs.Mount{}}
	defer p.root.DecRef(ctx) // the first process holds a reference
	for _, m := range k.VFS().GetAllMounts(ctx) {
		path, err := k.VFS().PathnameReachable(ctx, p.root, vfs.MakeVirtualDentry(m, m.Root()))
		if err == nil && path != "" && !isSystemPath(path) {
			p.mounts[m.Filesystem()] = m
		}
		m.DecRef(ctx)
	}
	p.mounts[p.root.Mount().Filesystem()] = p.root.Mount()
	w.files.mu.Lock()
	w.files.places = p
	w.files.mu.Unlock()
	return p
}

// isSystemPath reports whether a path is in a directory without files of users.
func isSystemPath(path string) bool {
	for _, s := range systemDirs {
		if path == s || strings.HasPrefix(path, s+"/") {
			return true
		}
	}
	return false
}

// path returns the path of a file in the first process's view, or "" if the file has no name or is
// not recorded. The mount through which the file was reached does not matter, so a program's own
// namespace or root hides nothing.
func (w *watcher) path(ctx context.Context, k *sentry.Kernel, file vfs.VirtualDentry) string {
	p := w.recordedMounts(k)
	if p == nil || file.Dentry().IsDead() {
		return ""
	}
	m := p.mounts[file.Mount().Filesystem()]
	if m == nil {
		return ""
	}
	path, err := k.VFS().PathnameReachable(ctx, p.root, vfs.MakeVirtualDentry(m, file.Dentry()))
	if err != nil {
		return ""
	}
	return path
}

// actorOf returns the actor for a task.
func (w *watcher) actorOf(t *sentry.Task) actor {
	pid := int32(t.Kernel().RootPIDNamespace().IDOfThreadGroup(t.ThreadGroup()))
	return actor{pid: pid, command: w.kin.command(pid), uid: uint32(t.Credentials().EffectiveKUID)}
}

// note records a path. The first call since the last survey determines whether the path existed.
func (f *files) note(path string, existed bool, by actor) {
	if path == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noteLocked(path, existed, by)
}

// noteLocked does what note does. The caller holds the lock.
func (f *files) noteLocked(path string, existed bool, by actor) {
	n, noted := f.pending[path]
	switch {
	case noted:
		existed = n.existed
	case len(f.pending) >= maxNotes:
		f.lost++
		return
	case f.pending == nil:
		f.pending = map[string]note{}
	}
	f.pending[path] = note{existed, by}
}

// hold records a writable descriptor.
func (f *files) hold(file *vfs.FileDescription, h held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		f.open = map[*vfs.FileDescription]held{}
	}
	f.open[file] = h
	if len(f.open) > 2*f.swept+1024 {
		f.sweepLocked()
	}
}

// sweepLocked removes closed descriptors. The files that they wrote are still to be checked.
func (f *files) sweepLocked() {
	for file, h := range f.open {
		if file.ReadRefs() > 0 {
			continue
		}
		delete(f.open, file)
		if h.path != "" {
			f.noteLocked(h.path, true, h.actor)
		}
		for _, path := range f.links[h.file] {
			f.noteLocked(path, true, h.actor)
		}
	}
	f.swept = len(f.open)
}

// maxLinks bounds the number of files that are known to have several names.
const maxLinks = 100_000

// link records an additional name of a file.
func (f *files) link(file inode, paths ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.links == nil {
		f.links = map[inode][]string{}
	}
	if len(f.links) >= maxLinks {
		f.lost++
		return
	}
	for _, path := range paths {
		if path != "" {
			f.links[file] = append(f.links[file], path)
		}
	}
}

// isEmpty reports whether a survey has no files to check.
func (f *files) isEmpty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pending) == 0 && len(f.open) == 0 && len(f.always) == 0 && f.lost == 0
}
