// Package prefault owns taking memory from the host in one call instead of one page fault per page,
// for short-lived processes with a known need.
//
// A page fault costs 5 to 15 µs on a virtual machine, and a Go program has one at its first access
// to each page of its heap. MADV_POPULATE_WRITE costs a tenth of that per page. This package does
// not change what a program does: after any error, pages are faulted in as usual.
//
// The package imports nothing. Go initialises a package as soon as its imports are initialised, in
// the order of import paths, so a package that imports only this one is initialised before the
// standard library.
package prefault

import "unsafe"

// stackSize is the size of the stack by which Heap makes the heap grow. The runtime rounds the size
// of a stack up to a power of two.
const stackSize = 16 << 20

// maxHeap is the largest size that Heap accepts.
const maxHeap = stackSize - 64<<10

// Heap populates size bytes of Go's heap, beginning skip bytes after the memory that is in use. The
// runtime treats them as memory that was used and freed before: it allocates from them first, and
// debug.FreeOSMemory gives back those that are unused. skip and size together are at most maxHeap.
//
// Heap makes the heap grow with a goroutine whose stack has stackSize bytes. Unlike other memory, a
// stack is free again as soon as its goroutine ends, without a collection.
func Heap(skip, size uintptr) {
	done := make(chan uintptr)
	go func() { done <- nearTop(nil) }()
	top := <-done
	const page = 8 << 10 // of the runtime's allocator; a stack begins and ends at a page
	start := (top+page-1)&^(page-1) - stackSize
	// Below start is the memory that the allocator has reserved for each processor, if it is near.
	const maxGap = 2 << 20
	if low := lowest() &^ (page - 1); skip == 0 && low < start && start-low < maxGap {
		populated[0] = span{low, start - low}
		size -= min(size, start-low)
	}
	populated[1] = span{start + skip, min(size, maxHeap-skip)}
	populateSpans()
}

type span struct{ start, size uintptr }

// populated is the memory that Heap has populated, and that Data has.
var populated [3]span

// AfterFork populates the same memory a second time; further calls do nothing. A process that forks
// shares its pages with its child, and takes a page fault for each page that it writes afterwards,
// even when the child has released the pages. Further calls do nothing, because by then the runtime
// may have given some of this memory back to the host, and would not give it back a second time.
func AfterFork() {
	populateSpans()
	populated = [len(populated)]span{}
}

// Again is AfterFork for a process that forks several times and collects no garbage.
func Again() { populateSpans() }

func populateSpans() {
	for _, s := range populated {
		if s.size > 0 {
			populate(s.start, s.size)
		}
	}
}

// Data populates the program's variables. It is for short-lived processes: in others, it would
// waste the pages that are never written, which processes of one program otherwise share.
func Data() {
	start := dataStart() &^ (1<<12 - 1)
	populated[2] = span{start, dataEnd() - start}
	populate(start, dataEnd()-start)
}

// lowest returns the lowest address of some new objects. Their sizes differ, so that the allocator
// places each in another block.
func lowest() uintptr {
	low := new([64]byte)
	objects = [...]any{low, new([1 << 10]byte), new([3 << 10]byte), new([4]*byte), new([64]*byte), new([200]*byte)}
	at := address(&low[0])
	for i := range objects {
		at = min(at, uintptr((*[2]unsafe.Pointer)(unsafe.Pointer(&objects[i]))[1]))
	}
	objects = [len(objects)]any{}
	return at
}

// objects makes values that are assigned to it escape to the heap.
var objects [6]any

// frame is larger than half of stackSize, so nearTop's stack takes up all of stackSize.
type frame [maxHeap - 64<<10]byte

// nearTop returns an address near the top of its stack, which grows downwards. Its frame is large
// because it has room for the argument of a call that is never made. The frame is not touched.
//
//go:noinline
func nearTop(never *frame) uintptr {
	if never != nil {
		return uintptr(lastByte(*never))
	}
	var mark byte
	return uintptr(unsafe.Pointer(&mark))
}

//go:noinline
func lastByte(f frame) byte { return f[len(f)-1] }

// populate makes the kernel map writable memory. It may fail.
func populate(start, size uintptr) {
	const populateWrite = 23 // MADV_POPULATE_WRITE, since Linux 5.14
	call(sysMadvise, start, size, populateWrite)
}
