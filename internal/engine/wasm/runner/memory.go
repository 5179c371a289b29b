package runner

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// Settings of Go's garbage collector. A small module is loaded and often ends before its garbage
// is worth a collection: with loadGCPercent, the first one is at 16 MiB. The memory of a module is
// not part of Go's heap (linearMemory), so the heap is a few times the module's size.
const (
	loadGCPercent = 400
	// smallPart is the part of the sandbox's memory up to which a module is small.
	smallPart = 64
)

// tuneCollector lets a small compiled module be loaded without a collection. It reports whether the
// module is small.
func (r request) tuneCollector(module *os.File) (small bool, err error) {
	info, err := module.Stat()
	if err != nil {
		return false, err
	}
	if small = r.compiled && info.Size() <= r.memory/smallPart; small {
		debug.SetGCPercent(loadGCPercent)
	}
	return small, nil
}

// endLoad prepares the collector for running the module.
func endLoad(small bool) {
	if !small {
		// Memory that the compiler used is now available to the module.
		debug.FreeOSMemory()
	}
}

// withLinearMemory returns a context in which the memories of modules are mappings of their own.
// They do not count as heap, so that a large memory neither starts nor delays a collection.
func withLinearMemory(ctx context.Context) context.Context {
	return experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(func(_, most uint64) experimental.LinearMemory {
		return &linearMemory{most: most}
	}))
}

// linearMemory is a memory of a module. Its whole address space is reserved at the start, so growing
// does not copy it. Only pages that the module writes occupy physical memory.
type linearMemory struct {
	most     uint64
	reserved []byte
}

// Reallocate implements experimental.LinearMemory.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if size > m.most {
		return nil
	}
	if m.reserved == nil {
		if m.most == 0 {
			return []byte{}
		}
		reserved, err := unix.Mmap(-1, 0, int(m.most), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		if err != nil {
			return nil
		}
		m.reserved = reserved
	}
	return m.reserved[:size]
}

// Free implements experimental.LinearMemory.
func (m *linearMemory) Free() {
	if m.reserved != nil {
		_ = unix.Munmap(m.reserved) // it can only fail for memory that is not a mapping
		m.reserved = nil
	}
}

// mapFile maps a whole file that does not change. Its pages are those of the page cache, so they are
// read once for all runners, and none is copied.
func mapFile(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() <= 0 || info.Size() > maxMapped {
		return nil, fmt.Errorf("it has %d bytes", info.Size())
	}
	return unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_POPULATE)
}

// maxMapped is the maximum size of a file that is mapped. The engine stores smaller ones only.
const maxMapped = 1 << 30
