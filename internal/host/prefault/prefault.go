// Package prefault owns taking memory from the host in one call instead of one
// page fault per page, for processes that live briefly and whose need is known.
//
// A page fault costs 5 to 15 µs on a virtual machine, and a Go program takes one
// for each page of its heap that it touches first. MADV_POPULATE_WRITE costs a
// tenth of that per page. Nothing here changes what a program does: after any
// error pages are faulted in as usual.
//
// It imports nothing. Go initialises a package as soon as all that it imports is
// ready, the first by its path, so that a package that imports only this one is
// initialised before the standard library.
package prefault

import "unsafe"

// reserve is how far Heap makes the heap grow, and a power of two like the size
// of any stack.
const reserve = 16 << 20

// Most is the largest size that Heap accepts.
const Most = reserve - 64<<10

// Heap populates size bytes of Go's heap, from skip bytes beyond what is used. The
// runtime treats them as memory that was used and freed before: it allocates from
// them first, and debug.FreeOSMemory gives back what is left of them. Both sizes
// together are at most Most.
//
// It grows the heap by a goroutine whose stack needs reserve bytes. Unlike other
// memory, a stack is free again as soon as its goroutine ends, without a
// collection.
func Heap(skip, size uintptr) {
	done := make(chan uintptr)
	go func() { done <- nearTop(nil) }()
	top := <-done
	const page = 8 << 10 // of the runtime's allocator; a stack begins and ends at one
	start := (top+page-1)&^(page-1) - reserve
	// Below lies what the allocator has set aside for each processor.
	const aside = 2 << 20
	if low := lowest() &^ (page - 1); skip == 0 && low < start && start-low < aside {
		taken[0] = span{low, start - low}
		size -= min(size, start-low)
	}
	taken[1] = span{start + skip, min(size, Most-skip)}
	populateTaken()
}

type span struct{ start, size uintptr }

// taken is what Heap has populated.
var taken [2]span

// AfterFork populates the same memory once more, once. A process that forks shares
// its pages with its child, and pays a fault for each that it writes afterwards,
// also when the child has long let go of them. Later some of this memory may have
// been given back, and the runtime would not give it back a second time.
func AfterFork() {
	populateTaken()
	taken = [2]span{}
}

func populateTaken() {
	for _, s := range taken {
		if s.size > 0 {
			populate(s.start, s.size)
		}
	}
}

// Data populates the program's variables. It is for processes that end soon: pages
// that are not written to would otherwise be shared with other processes of the
// program.
func Data() {
	start := dataStart() &^ (1<<12 - 1)
	populate(start, dataEnd()-start)
}

// lowest returns the lowest address of some objects of different sizes, each of
// which comes from a block of its own.
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

// objects makes what is assigned to it come from the heap.
var objects [6]any

// frame is larger than half of reserve, so that the stack of nearTop has all of
// it.
type frame [Most - 64<<10]byte

// nearTop returns an address within the first few kilobytes of its stack, which
// grows downwards. Its own frame is large for the argument of a call that is never
// made, and is not touched.
//
//go:noinline
func nearTop(never *frame) uintptr {
	if never != nil {
		return uintptr(last(*never))
	}
	var mark byte
	return uintptr(unsafe.Pointer(&mark))
}

//go:noinline
func last(f frame) byte { return f[len(f)-1] }

// populate has the kernel map memory that may be written. It is allowed to fail.
func populate(start, size uintptr) {
	const populateWrite = 23 // MADV_POPULATE_WRITE, since Linux 5.14
	call(sysMadvise, start, size, populateWrite)
}
