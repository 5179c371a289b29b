package watch

import (
	"sync"

	"gvisor.dev/gvisor/pkg/context"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// mostNotes bounds the paths that a survey has to look at. A sandbox has far fewer
// files; what makes more is a loop of new names.
const mostNotes = 1_000_000

// note is a path that is to be looked at.
type note struct {
	existed bool // at the last survey
	actor
}

// actor changed a file, as far as it is known: the last that noted it.
type actor struct {
	pid, command int32
	uid          uint32
}

// held is a descriptor through which a program may write at any time, also into memory that is
// mapped from it. It is not kept open by this, and is checked for whether it still is.
type held struct {
	path string // where it was last
	file inode  // for one without a path
	actor
}

// inode identifies a file, whatever names it has.
type inode struct {
	major, minor uint32
	number       uint64
}

// files holds which of the sandbox's files have to be looked at, and what is known of them.
type files struct {
	// names is held while names change. A rename holds it alone, because it moves all
	// that is below a directory.
	names sync.RWMutex

	mu      sync.Mutex
	pending map[string]note
	open    map[*vfs.FileDescription]held
	swept   int // how many were open after the last sweep
	lost    uint64
	known   map[string]state   // by the last survey
	links   map[inode][]string // further names of files
	always  map[string]actor   // may be written without a descriptor
	places  *places
}

// places are the mounts that the first process sees and whose files count.
type places struct {
	root   vfs.VirtualDentry
	mounts map[*vfs.Filesystem]*vfs.Mount
}

// systemPlaces hold no files of anybody's.
var systemPlaces = []string{"/proc", "/sys", "/dev"}

// where returns the mounts. They do not change: no program inside may mount, except
// in a namespace of its own.
func (w *watcher) where(k *sentry.Kernel) *places {
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
	defer p.root.DecRef(ctx) // the first process keeps it
	for _, m := range k.VFS().GetAllMounts(ctx) {
		path, err := k.VFS().PathnameReachable(ctx, p.root, vfs.MakeVirtualDentry(m, m.Root()))
		if err == nil && path != "" && !system(path) {
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

func system(path string) bool {
	for _, s := range systemPlaces {
		if path == s || len(path) > len(s) && path[:len(s)] == s && path[len(s)] == '/' {
			return true
		}
	}
	return false
}

// path is where the first process sees a file, or "" if it has no name or lies where no files
// count. It does not matter through which mount the file was reached: a namespace or a root of a
// program's own hides nothing.
func (w *watcher) path(ctx context.Context, k *sentry.Kernel, file vfs.VirtualDentry) string {
	p := w.where(k)
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

func (w *watcher) actorOf(t *sentry.Task) actor {
	pid := int32(t.Kernel().RootPIDNamespace().IDOfThreadGroup(t.ThreadGroup()))
	return actor{pid: pid, command: w.kin.command(pid), uid: uint32(t.Credentials().EffectiveKUID)}
}

// note remembers a path. The first call since the last survey determines whether the path existed.
func (f *files) note(path string, existed bool, by actor) {
	if path == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noteLocked(path, existed, by)
}

func (f *files) noteLocked(path string, existed bool, by actor) {
	n, again := f.pending[path]
	switch {
	case again:
		existed = n.existed
	case len(f.pending) >= mostNotes:
		f.lost++
		return
	case f.pending == nil:
		f.pending = map[string]note{}
	}
	f.pending[path] = note{existed, by}
}

// hold remembers a descriptor that can write.
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

// sweepLocked forgets descriptors that are closed; what they wrote is still to
// be looked at.
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

// mostLinks bounds the files that are known to have several names.
const mostLinks = 100_000

// link remembers that a file has one more name.
func (f *files) link(file inode, paths ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.links == nil {
		f.links = map[inode][]string{}
	}
	if len(f.links) >= mostLinks {
		f.lost++
		return
	}
	for _, path := range paths {
		if path != "" {
			f.links[file] = append(f.links[file], path)
		}
	}
}

// nothing reports whether a survey has no files to look at.
func (f *files) nothing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pending) == 0 && len(f.open) == 0 && len(f.always) == 0 && f.lost == 0
}
