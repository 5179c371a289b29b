// Package trim owns the release of memory that the programs of a sandbox have reserved and never
// touched. It runs in gVisor's kernel process, on request, before the sandbox's state is saved.
package trim

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/metric"
	metricpb "gvisor.dev/gvisor/pkg/metric/metric_go_proto"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	gsync "gvisor.dev/gvisor/pkg/sync"
)

// gVisor reserves memory for programs in pieces of 2 MB, and a checkpoint reads each page of a
// piece to determine whether it contains data. Reading a page allocates it. For a nearly empty
// sandbox, allocating, comparing and freeing pages takes half of the time of a checkpoint. A
// program could declare with madvise that it does not need the pages. This package does so on its
// behalf, for reserved pages that are holes in the file that holds the programs' memory.

// Metric is the name of our metric in gVisor. We cannot add a control call to gVisor, but it
// computes a metric when a client reads it. Reading this metric releases the memory, and its value
// is the total number of bytes released, or Failed.
const Metric = "crannog_trimmed_bytes"

// Failed is the value after an error. The kernel's log has the error.
const Failed = -1

var (
	kernel atomic.Pointer[sentry.Kernel] // set by SetKernel
	total  atomic.Uint64                 // the number of bytes released so far
	// trimming is locked while memory is released, so that concurrent callers do not release and
	// count the same memory twice.
	trimming sync.Mutex
)

// Install registers the metric in a starting kernel.
func Install() error {
	return metric.RegisterCustomUint64Metric("/crannog/trimmed_bytes", metric.Uint64Metadata{
		Cumulative: true, Sync: true, Unit: metricpb.MetricMetadata_UNITS_NONE,
		Description: "Bytes that programs had reserved and not touched, and that were released. Reading this metric releases such memory.",
	}, func(...*metric.FieldValue) uint64 { return releaseMemory() })
}

// SetKernel sets the kernel whose memory is released. It is called when programs start to run in
// the kernel.
func SetKernel(k *sentry.Kernel) { kernel.Store(k) }

// releaseMemory releases memory and returns the value of the metric.
func releaseMemory() uint64 {
	k := kernel.Load()
	if k == nil {
		return 0
	}
	trimming.Lock()
	defer trimming.Unlock()
	bytes, err := trim(k)
	all := total.Add(bytes)
	if err != nil {
		log.Warningf("cannot release untouched memory: %v", err)
		return math.MaxUint64 // Failed, when it is read as a signed number
	}
	return all
}

// trim releases the memory that no program of a kernel has touched.
func trim(k *sentry.Kernel) (uint64, error) {
	file, err := memoryFile(k.MemoryFile())
	if err != nil {
		return 0, err
	}
	extMu, err := private[gsync.Mutex](k, "extMu")
	if err != nil {
		return 0, err
	}
	// A page that has not yet been loaded from a saved state looks like a hole, and would be lost.
	if err := k.MemoryFile().AwaitLoadAll(); err != nil {
		return 0, err
	}
	// No program may write to a page between the check and its release.
	k.Pause()
	defer k.Unpause()
	// Every operation that changes a kernel from outside, such as a checkpoint, holds this lock. It
	// is acquired before all other locks of the kernel. Pause acquires and releases it too.
	extMu.Lock()
	defer extMu.Unlock()
	return releaseUntouched(k, int(file.Fd()))
}

// releaseUntouched releases the memory that is a hole in a kernel's memory file.
func releaseUntouched(k *sentry.Kernel, file int) (uint64, error) {
	type search struct {
		of    *mm.MemoryManager
		spans []span
		err   error
	}
	var searches []*search
	for m := range managers(k) {
		if m.IncUsers() { // otherwise its last program is ending
			searches = append(searches, &search{of: m})
		}
	}
	// Programs wait for this.
	var work sync.WaitGroup
	for _, s := range searches {
		work.Go(func() { s.spans, s.err = untouched(s.of, k.MemoryFile(), file) })
	}
	work.Wait()
	var bytes uint64
	var errs []error
	for _, s := range searches {
		errs = append(errs, s.err)
		for _, free := range s.spans {
			if err := s.of.Decommit(free.Start, uint64(free.Length())); err != nil {
				errs = append(errs, err)
				continue
			}
			bytes += uint64(free.Length())
		}
		s.of.DecUsers(k.SupervisorContext())
	}
	return bytes, errors.Join(errs...)
}

// managers returns the memory managers of a kernel's programs. Threads share one.
func managers(k *sentry.Kernel) map[*mm.MemoryManager]bool {
	all := map[*mm.MemoryManager]bool{}
	for _, t := range k.RootPIDNamespace().Tasks() {
		t.WithMuLocked(func(t *sentry.Task) {
			if m := t.MemoryManager(); m != nil {
				all[m] = true
			}
		})
	}
	return all
}
