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

// reserve is how far Heap makes the heap grow. It is a power of two, like the size of any stack.
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
	// Below this address is the memory that the allocator has reserved for each processor.
	const aside = 2 << 20
	if low := lowest() &^ (page - 1); skip == 0 && low < start && start-low < aside {
		taken[0] = span{low, start - low}
		size -= min(size, start-low)
	}
	taken[1] = span{start + skip, min(size, Most-skip)}
	populateTaken()
}

type span struct{ start, size uintptr }

// taken is the memory that Heap has populated.
var taken [2]span

// AfterFork populates the same memory once more, and only once. A process that forks shares its
// pages with its child, and takes a fault for each page that it writes afterwards, even when the
// child has long released them. Later some of this memory may have been given back to the host, and
// the runtime would not give it back a second time.
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

// Data populates the program's variables. It is for processes that end soon: otherwise pages that
// are never written would be shared with other processes of the program.
func Data() {
	start := dataStart() &^ (1<<12 - 1)
	populate(start, dataEnd()-start)
}

// lowest returns the lowest address of some objects of different sizes, each of which is in a block
// of its own.
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

// frame is larger than half of reserve, so nearTop's stack takes up all of reserve.
type frame [Most - 64<<10]byte

// nearTop returns an address within the first few kilobytes of its stack, which grows downwards.
// Its frame is large because of the argument of a call that is never made; the frame is not
// touched.
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

// populate makes the kernel map writable memory. It may fail.
func populate(start, size uintptr) {
	const populateWrite = 23 // MADV_POPULATE_WRITE, since Linux 5.14
	call(sysMadvise, start, size, populateWrite)
}
